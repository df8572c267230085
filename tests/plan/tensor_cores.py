"""What the tests of the tensor-core engines' plans share: the classes that these compute, and one engine's plans."""

from __future__ import annotations

from plan.problems import BFLOAT16, FLOAT16, FLOAT32, H200, TF32, TF32X3

HALF = 4  # the class of half precision on tensor cores
CLASSES = {"tf32": (FLOAT32, TF32), "bf16": (BFLOAT16, HALF)}
CLASSES_WITH_TF32X3 = {**CLASSES, "tf32x3": (FLOAT32, TF32X3)}
CLASS_OF_DTYPE = {FLOAT32: TF32, FLOAT16: HALF, BFLOAT16: HALF}


def plans_of(engine, module, problem, device=H200):
    return [plan for plan in module.candidates(problem, device) if plan["engine"] == engine]


def on_tensor_cores(plan) -> bool:
    """Whether its engine multiplies on tensor cores, of a Hopper GPU or of another one."""
    return plan["engine"].endswith("_sm90a") or plan["engine"] == "portable"
