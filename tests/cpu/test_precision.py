"""precision.py and request.py: `use_precision`, `flags`, PyTorch's switches, and what routing decides for them."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from cpu.python_process import run
from pretend_gpu import decide, operands
from scope_requests import nothing_stays_in_force, requested
from served import tf32

import convt_ext
from convt_ext import flags, use_precision
from convt_ext.dispatch import precision, routing
from convt_ext.dispatch.auto_dispatch import AutoDispatch, AutoDispatchInClass
from convt_ext.dispatch.request import BACKENDS, PRECISIONS, decode_request, encode_request, merged

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


# ---- requests: keywords, flags, and the implementations that they allow


__all__ = ["nothing_stays_in_force"]


@pytest.mark.parametrize("asked", list(itertools.product((None, *PRECISIONS), (None, *BACKENDS))), ids=str)
def test_a_request_encodes_both_keywords(asked):
    assert decode_request(encode_request(*asked)) == asked


@pytest.mark.parametrize("wrong", ["cudnn", "", 1, ["torch"]])
def test_an_unknown_backend_is_an_error(wrong):
    x, weight, _ = operands(device="cpu")
    for call in (lambda: flags(backend=wrong), lambda: convt_ext.conv_transpose2d(x, weight, backend=wrong)):
        with pytest.raises(ValueError, match="backend must be one of 'auto', 'convt_ext', 'torch', but got"):
            call()


def test_the_innermost_flags_are_active_and_have_defaults():
    with flags(precision="tf32", backend="convt_ext"):
        assert requested() == "convt_ext:tf32"
        with flags(backend="torch"):
            assert requested() == "torch:"
            with use_precision("exact"):
                assert requested() == "exact"
            with flags():
                assert requested() is None
        assert requested() == "convt_ext:tf32"


@pytest.mark.parametrize(
    ("keywords", "in_force", "expected"),
    [
        (None, None, (None, "auto", False)),
        ("tf32", None, ("tf32", "auto", True)),
        (None, "convt_ext:tf32", ("tf32", "convt_ext", False)),
        ("ieee", "convt_ext:tf32", ("ieee", "convt_ext", True)),
        ("auto:", "torch:tf32", ("tf32", "auto", False)),
        ("torch:", "exact", ("exact", "torch", False)),
    ],
)
def test_keywords_override_flags(keywords, in_force, expected):
    assert merged(keywords, in_force) == expected


# PyTorch's switches select TF32 or float32; the implementations that a request then allows.
SELECTED = {
    (None, None): ("auto", "auto"),
    (None, "convt_ext"): ("convt_ext", "convt_ext"),
    (None, "torch"): ("torch", "torch"),
    ("tf32", None): ("auto", "convt_ext"),
    ("tf32", "convt_ext"): ("convt_ext", "convt_ext"),
    ("tf32", "torch"): ("torch", None),
    ("ieee", None): ("convt_ext", "auto"),
    ("ieee", "torch"): (None, "torch"),
    ("exact", None): ("convt_ext", "convt_ext"),
    ("exact", "auto"): ("convt_ext", "convt_ext"),
    ("exact", "torch"): (None, None),
    ("aten", None): ("convt_ext", "convt_ext"),
    ("tf32x3", None): ("convt_ext", "convt_ext"),
}


@pytest.mark.parametrize("asked", SELECTED, ids=str)
@pytest.mark.parametrize("on", [True, False], ids=["TF32", "float32"])
def test_pytorchs_operator_is_a_candidate_where_its_switches_agree(asked, on):
    expected = SELECTED[asked][0 if on else 1]
    with tf32(on):
        if expected is None:
            with pytest.raises(ValueError, match=r'backend="torch" computes float32 as .* but got precision='):
                routing.selection(torch.float32, encode_request(*asked), (9, 0))
        else:
            found = routing.selection(torch.float32, encode_request(*asked), (9, 0))
            assert found.backend == expected
            assert found.is_explicit == (asked[0] is not None)


def test_half_precision_agrees_always_and_exact_never(monkeypatch):
    for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
        assert routing.selection(dtype, "half", (9, 0)) == (name, "auto", True)
        assert routing.selection(dtype, "ieee", (9, 0)) == ("ieee", "convt_ext", True)
    assert routing.selection(torch.float64, "ieee", (9, 0)) == ("ieee", "auto", True)
    assert routing.selection(torch.float64, "exact", (9, 0)) == ("ieee", "convt_ext", True)
    with flags(precision="tf32"):  # is for float32
        assert routing.selection(torch.float64, None, (9, 0)) == ("ieee", "auto", False)
    monkeypatch.setattr(precision, "class_by_switches", lambda *_: "aten")  # without cuDNN
    assert routing.selection(torch.float32, "ieee", (9, 0)) == ("ieee", "auto", True)


def test_decisions_of_routing(pretend_gpu):
    with tf32(True):
        assert decide(*operands(), backend="torch") is routing.BACKEND
        kinds = {
            asked: type(decide(*operands(), precision=asked[0], backend=asked[1])[3])
            for asked in ((None, None), (None, "convt_ext"), ("tf32", None), ("tf32", "convt_ext"), ("exact", None))
        }
    assert kinds.pop((None, None)) is AutoDispatch
    assert kinds.pop(("tf32", None)) is AutoDispatchInClass
    assert not any(issubclass(kind, AutoDispatch) for kind in kinds.values())
    with flags(backend="torch"):
        assert decide(*operands()) is routing.BACKEND
        assert decide(*operands(), backend="convt_ext")[3].by_name


def test_on_other_gpus_tensor_cores_are_opt_in(a100):
    with tf32(True):
        for asked in (None, "tf32"):
            assert decide(*operands(), precision=asked) is routing.TENSOR_CORES
            assert not isinstance(decide(*operands(), precision=asked, backend="convt_ext"), routing.Reason)
    with tf32(False):
        assert not isinstance(decide(*operands(), precision="tf32"), routing.Reason)


@pytest.fixture
def directions(pretend_gpu, monkeypatch):
    """A call with an explicit precision that PyTorch's switches select too, and that PyTorch's operator computes."""
    monkeypatch.setattr(AutoDispatch, "left_to_torch", lambda self, direction: True)
    with tf32(False):
        yield decide(*operands(), precision="ieee")[3]


def test_pytorchs_operator_runs_a_call_without_gradients(directions):
    x, weight, bias = operands()
    assert not directions.serves(x, weight, bias, 0)
    assert directions.is_aten_call(x, weight, bias)
    weight.requires_grad_()  # its own node records gradients
    assert directions.serves(x, weight, bias, 2)
    assert not directions.is_aten_call(x, weight, bias)
    assert not directions.is_recorded_by_torch(2)


def test_gradients_keep_the_precision_when_the_switches_change(directions, monkeypatch):
    ran = []
    for kind, name in ((AutoDispatch, "the faster one"), (type(directions._native), "convt_ext")):
        for method in ("forward", "gradients"):
            monkeypatch.setattr(kind, method, lambda self, *_, name=name: ran.append(name))
    for on in (False, True):
        with tf32(on):
            directions.gradients(None, None, None, (True, True, False))
            directions.forward(None, None, None)
    assert ran == ["the faster one"] * 2 + ["convt_ext"] * 2


def test_on_the_cpu_every_backend_is_pytorchs_operator():
    x, weight, bias = operands(device="cpu")
    expected = torch.nn.functional.conv_transpose2d(x, weight, bias)
    for backend in BACKENDS:
        assert torch.equal(convt_ext.conv_transpose2d(x, weight, bias, backend=backend), expected)
