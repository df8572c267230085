"""`explain` has words for a plan of every kernel that the sources name."""

from __future__ import annotations

from itertools import product

import torch
from cases import CASES, STAGED_CASES
from cpu_kernels import needs_binary
from plan.problems import DEVICES, H200
from raw_ops import (
    PRECISIONS,
    TENSOR_CORE_CLASSES,
    Call,
    GradientCall,
    kernel_names,
    tensor_core_kernels,
)

from convt_ext.explain import _plan_lines, _tile

pytestmark = needs_binary


def test_every_kernel():
    """Plans of each kernel instance and each direction, as the cases of the GPU tests reach them."""
    told = set()
    classes = [*TENSOR_CORE_CLASSES.values(), (torch.float32, "ieee"), (torch.float32, "aten"), (torch.float64, "ieee")]
    classes += [(torch.float16, "ieee"), (torch.bfloat16, "ieee")]
    for case in [*CASES, *STAGED_CASES]:
        for dtype, precision in classes:
            assert precision in PRECISIONS
            call = Call.of(case, dtype, precision, device="meta")
            for channels_last in (False, True):
                forward = call.replace(
                    channels_last=channels_last,
                    x=call.x.to(memory_format=torch.channels_last) if channels_last else call.x,
                )
                gradients = [GradientCall("grad_input", call.x, call.weight, forward, channels_last)]
                gradients.append(GradientCall("grad_weight", call.x, call.x, forward, channels_last))
                for made, gpu in product((forward, *gradients), (H200, DEVICES["a100"])):
                    candidates = made.candidates(gpu)
                    answer = {"plan": candidates[0], "candidates": candidates, "floor_us": 1.0, "torch_us": 0.0}
                    text = "\n".join(_plan_lines(answer, "a GPU"))
                    assert all(_tile(plan) and _tile(plan) in text for plan in candidates)
                    told |= {plan["kernel"] for plan in candidates}
    missing = {*kernel_names(), *tensor_core_kernels()} - told
    assert not missing
