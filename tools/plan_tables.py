"""What tools/measure_plans.py and tools/measured_torch.py share: rows of kernels/plan/measured_*.cpp."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from convt_ext.bench.layers import Layer

TABLES = Path(__file__).resolve().parents[1] / "kernels" / "plan"
PRECISIONS = {"tf32": "kTf32", "bf16": "kHalf", "tf32x3": "kTf32x3", "ieee": "kIeee"}


def problem_of(layer: Layer) -> list[list[int]]:
    """Sizes and axes as rows have them."""
    axes = zip((layer.h, layer.w), layer.output_size, layer.k, layer.s, layer.p, layer.d, strict=True)
    return [[layer.n, layer.c_in, layer.c_out, layer.g], *(list(axis) for axis in axes)]


def call_text(precision: str, layout: str, problem: list[list[int]]) -> str:
    """What rows say of a call: precision, channels_last, sizes and axes."""
    numbers = ", ".join("{" + ", ".join(map(str, group)) + "}" for group in problem)
    return f"Precision::{PRECISIONS[precision]}, {'true' if layout == 'nhwc' else 'false'}, {numbers}"


def write_table(name: str, tool: str, row: str, lines: Iterable[str]) -> None:
    """measured_{name}.cpp, of rows of that type of plan/measured.h."""
    path = TABLES / f"measured_{name}.cpp"
    rows = list(lines)
    head = [
        f"// Written by tools/{tool} from measurements on an H200: see plan/measured.h.",
        "#include <iterator>", "", '#include "plan/measured.h"', "", "namespace convt {", "",
        "// clang-format off: a row is a line", f"static constexpr {row} kRows[] = {{",
    ]  # fmt: skip
    type_of_table = {"MeasuredPlan": "MeasuredTable", "MeasuredTorch": "MeasuredTorchTable"}[row]
    foot = [
        "};", "// clang-format on", "",
        f"{type_of_table} measured_{name}() {{ return {{std::begin(kRows), std::end(kRows)}}; }}", "",
        "}  // namespace convt", "",
    ]  # fmt: skip
    path.write_text("\n".join([*head, *(f"    {line}" for line in rows), *foot]))
    print(f"{path.name}: {len(rows)} rows")
