"""Checks every candidate of the portable engine for the cases of tests/cases.py, on this GPU. A separate process:

    CONVT_EXT_PLAN_FOR=80,108,166912,167936,1410,1400 python tests/portable_process.py

Prints one JSON object: the calls that were made, the kernels that made them, and what was wrong. Called by
tests/gpu/test_portable.py. Knows no pytest.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import product

from cases import CASES
from families import HALF_AND_TF32
from raw_ops import DIRECTIONS, TENSOR_CORE_CLASSES, Call, GradientCall, run_poisoned


def main() -> None:
    launched: Counter[str] = Counter()
    wrong: list[str] = []
    for case, kind, direction, channels_last in product(CASES, HALF_AND_TF32, DIRECTIONS, (False, True)):
        dtype, precision = TENSOR_CORE_CLASSES[kind]
        # Sums of small integers are the same in every order, so nothing but the right bits will do.
        x, weight, bias = case.tensors(dtype, device="cuda", integers=True)
        call = Call(x, weight, bias, **case.arguments, precision=precision, channels_last=channels_last)
        if direction == "forward":
            made = call
        else:
            made = GradientCall.of(direction, call.replace(bias=None), integers=True).in_layout(channels_last)
        expected = made.map(lambda tensor: tensor.double().cpu()).torch()
        for number, plan in enumerate(made.candidates()):
            if plan["engine"] != "portable":
                continue
            launched[plan["kernel"]] += 1
            try:
                result = run_poisoned(made, expected.numel(), number)
            except RuntimeError as error:
                wrong.append(f"{case.name}, {direction}, {plan}: {error}")
                continue
            if not (result.double().cpu() == expected.to(dtype).double()).all():
                wrong.append(f"{case.name}, {direction}, channels_last {channels_last}, {plan}")
    print(json.dumps({"launched": launched, "wrong": wrong}))


if __name__ == "__main__":
    main()
