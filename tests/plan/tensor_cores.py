"""The classes that tensor-core engines compute, and the plans of one engine."""

from __future__ import annotations

import re
from typing import Any

from plan.problems import BFLOAT16, FLOAT16, FLOAT32, H200, HALF, TF32, TF32X3, Problem

CLASSES = {"tf32": (FLOAT32, TF32), "bf16": (BFLOAT16, HALF)}
CLASSES_WITH_TF32X3 = {**CLASSES, "tf32x3": (FLOAT32, TF32X3)}
CLASS_OF_DTYPE = {FLOAT32: TF32, FLOAT16: HALF, BFLOAT16: HALF}
# As kernels' names have them.
KINDS = {**CLASSES_WITH_TF32X3, "f16": (FLOAT16, HALF)}


def plans_of(engine: str, module, problem: Problem, device=H200) -> list[dict[str, Any]]:
    return [plan for plan in module.candidates(problem, device) if plan["engine"] == engine]


def plans_like(kernels: str, module, problem: Problem, device=H200) -> list[dict[str, Any]]:
    """The candidates with a kernel whose whole name matches the pattern."""
    return [plan for plan in module.candidates(problem, device) if re.fullmatch(kernels, plan["kernel"])]


def on_tensor_cores(plan: dict[str, Any]) -> bool:
    """Whether the plan's engine multiplies on tensor cores, of Hopper or of other GPUs."""
    return plan["engine"].endswith("_sm90a") or plan["engine"] == "portable"
