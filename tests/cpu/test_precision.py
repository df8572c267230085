"""precision.py and request.py: names of precisions, `use_precision`, and every state of PyTorch's switches."""

from __future__ import annotations

import json

import pytest
import torch
from cpu.python_process import run
from scope_requests import requested
from served import tf32

from convt_ext import use_precision
from convt_ext.dispatch import precision

HOPPER, TURING = (9, 0), (7, 5)


def test_a_context_ends_with_an_exception_and_decorates_functions():
    with pytest.raises(KeyError), use_precision("exact"):
        raise KeyError

    @use_precision("aten")
    def inner(depth: int) -> str | None:
        return inner(depth - 1) if depth else requested()

    assert requested() is None
    assert inner(2) == "aten"
    assert requested() is None


def test_a_precision_for_float32_is_rejected_for_other_inputs():
    with pytest.raises(ValueError, match="the input is float16: leave precision=None"):
        precision.explicit_class(torch.float16, "tf32", True)
    with pytest.raises(ValueError, match="autocast casts the input to float16: make the call inside of"):
        precision.explicit_class(torch.float16, "tf32", True, was_float32=True)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float32, None), (torch.float64, None)],
    ids=str,
)
def test_half_is_for_half_precision(dtype, expected):
    assert precision.explicit_class(dtype, "half", from_keyword=False) == expected
    if expected is not None:
        assert precision.explicit_class(dtype, "half", from_keyword=True) == expected
        return
    with pytest.raises(ValueError, match="is for float16 and bfloat16 and the input is float"):
        precision.explicit_class(dtype, "half", from_keyword=True)


@pytest.mark.parametrize("wrong", ["fp32", "IEEE", "", 1, ["exact"]])
def test_other_precisions_are_errors(wrong):
    with pytest.raises(ValueError, match="'exact', 'aten', 'ieee', 'tf32x3', 'tf32', 'half' or None"):
        use_precision(wrong)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [(TURING, "ieee"), ((8, 0), "tf32"), ((8, 6), "tf32"), ((8, 9), "tf32"), (HOPPER, "tf32"), ((12, 0), "tf32")],
)
@pytest.mark.parametrize("on", [True, False])
def test_tf32_begins_with_the_a100(capability, expected, on):
    """8.0 is the smallest capability with TF32; no other GPU tests this limit. Other dtypes do not depend on it."""
    with tf32(on):
        assert precision.class_by_switches(torch.float32, capability) == (expected if on else "ieee")
        for dtype, name in ((torch.float64, "ieee"), (torch.float16, "f16"), (torch.bfloat16, "bf16")):
            assert precision.class_by_switches(dtype, capability) == name


def test_classes_of_the_default():
    for capability in (HOPPER, TURING, (8, 0), (12, 0)):
        found = {served for served in ("ieee", "aten", "tf32", "f16", "bf16")
                 if precision.has_estimates(served, capability)}  # fmt: skip
        assert found == {"ieee", "aten", *(("tf32", "f16", "bf16") if capability == HOPPER else ())}
        assert precision.may_be_measured(capability) == (capability != TURING)


# Each line runs in its own process, because the older and the newer switches cannot be restored.
# On the right: the class of float32 on a GPU with TF32, which is what PyTorch's cuDNN or cuBLAS would do.
SWITCHES = [
    ("pass", "tf32"),
    ("cudnn.allow_tf32 = False", "ieee"),
    ("cudnn.allow_tf32 = True", "tf32"),
    ("cudnn.conv.fp32_precision = 'ieee'", "ieee"),
    ("cudnn.conv.fp32_precision = 'tf32'", "tf32"),
    ("cudnn.conv.fp32_precision = 'none'", "ieee"),
    ("cudnn.fp32_precision = 'tf32'", "tf32"),
    ("cudnn.fp32_precision = 'ieee'", "ieee"),
    ("cudnn.fp32_precision = 'none'", "ieee"),
    ("backends.fp32_precision = 'tf32'", "tf32"),
    ("cudnn.conv.fp32_precision = 'ieee'", "ieee"),
    ("backends.fp32_precision = 'ieee'", "ieee"),
    ("cudnn.enabled = False", "aten"),
    ("backends.cuda.matmul.fp32_precision = 'tf32'", "tf32"),
    ("backends.cuda.matmul.fp32_precision = 'ieee'", "aten"),
    ("torch.set_float32_matmul_precision('high')", "tf32"),
    ("torch.set_float32_matmul_precision('highest')", "aten"),
    ("cudnn.enabled = True", "ieee"),
]

_SCRIPT = """
import json, sys, torch
from torch import backends
from torch.backends import cudnn
from convt_ext.dispatch.precision import class_by_switches
found = []
for line in json.load(sys.stdin):
    exec(line)
    found.append([class_by_switches(torch.float32, (9, 0)), class_by_switches(torch.float32, (7, 5))])
print(json.dumps(found))
"""


def test_switches_of_float32():
    found = json.loads(run(_SCRIPT, input=json.dumps([line for line, _ in SWITCHES])))
    for (line, expected), (hopper, turing) in zip(SWITCHES, found, strict=True):
        assert hopper == expected, line
        assert turing in ("ieee", "aten"), line  # TF32 came after Turing
