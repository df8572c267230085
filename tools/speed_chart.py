"""Draws docs/speed.svg: on the left every call of unseen layers, on the right whole steps of networks.

Called by charts.py, which reads the result files. Needs the package matplotlib.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHECKOUT = Path(__file__).resolve().parent.parent

# By its path: the package would load torch, and may be installed from other sources.
SUMMARY = runpy.run_path(str(CHECKOUT / "convt_ext/bench/summary.py"))

DIRECTIONS = {"fwd": "forward pass", "dx": "gradient of the input", "dw": "gradient of the weight"}
DTYPES = {"float32": "float32 (TF32)", "bfloat16": "bfloat16 (autocast)"}
MODES = {"train": "training", "infer": "inference"}
_COLORS = {"fwd": "#1b6ca8", "dx": "#d1652c", "dw": "#2a7f62", "float32": "#1b6ca8", "bfloat16": "#8fbbdc"}
_GREY = "#777777"

Row = dict[str, Any]


def listed(words: Sequence[str]) -> str:
    """
    >>> [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])]
    ['a', 'a and b', 'a, b and c']
    """
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def measured_steps(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["ours_ms"] and row["torch_ms"]]


def draw(calls: dict[str, Any], steps: dict[str, Any], description: str, path: Path) -> None:
    """Writes the chart of two result files, with a description of where it is from."""
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # The defaults first: what a user has set for pictures of his own must not show here.
    settings: dict[str, Any] = {"svg.hashsalt": "convt_ext", "font.size": 9, "axes.titlesize": 10}
    with style.context(["default", settings]):
        figure = Figure(figsize=(11.0, 4.8), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
        _draw_calls(left, calls["rows"])
        _draw_steps(right, measured_steps(steps["rows"]))
        gpus = list(dict.fromkeys(f"an {content['gpu']}" for content in (calls, steps)))
        figure.suptitle(f"PyTorch's time / ours on {listed(gpus)}", fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Description": description, "Date": None, "Creator": None})


def _draw_calls(axes: Axes, rows: Sequence[Row]) -> None:
    """Of each direction the gains of all calls, from the most to the least; what PyTorch's operator serves is 1."""
    counts, ratio, served_by = SUMMARY["counts"], SUMMARY["ratio"], SUMMARY["served_by"]
    lowest, highest = 1.0, 2.0
    for direction, name in DIRECTIONS.items():
        of_it = [row for row in rows if row["direction"] == direction]
        of_it = [row for row in of_it if served_by(row) is not None and ratio(row) is not None]
        if not of_it:
            continue
        gains = sorted((ratio(row) if counts(row) else 1.0 for row in of_it), reverse=True)
        mean = SUMMARY["geometric_mean"](gains)
        shares = [100 * (index + 0.5) / len(gains) for index in range(len(gains))]
        axes.plot(shares, gains, color=_COLORS[direction], linewidth=1.8, label=f"{name}: {mean:.2f}×")
        lowest, highest = min(lowest, gains[-1]), max(highest, gains[0])
    axes.axhline(1.0, color=_GREY, linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    ticks = [tick for tick in (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if lowest / 2 < tick < highest * 2]
    axes.set_yticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(lowest / 1.15, highest * 1.15)
    axes.set_xlim(0, 100)
    axes.set_xlabel("calls, in % of all, from the most to the least gain")
    summary = SUMMARY["summarise"](rows)
    layers = len({row["layer"] for row in rows})
    axes.set_title(
        f"All {summary.num_calls} calls of the {layers} held-out layers in unseen_validation.csv: "
        f"{summary.speedup:.2f}×\n(the {summary.num_calls - summary.num_ours} that PyTorch's operator runs are at 1×)"
    )
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, title="geometric mean of all calls of a direction", alignment="left")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_steps(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar for each program and dtype, with both wall times beside it."""
    names = list(dict.fromkeys(map(_name_of_step, rows)))
    dtypes = [dtype for dtype in DTYPES if any(row["dtype"] == dtype for row in rows)]
    height = 0.8 / max(1, len(dtypes))
    ratios = [row["torch_ms"] / row["ours_ms"] for row in rows]
    for number, dtype in enumerate(dtypes):
        of_it = [row for row in rows if row["dtype"] == dtype]
        places = [names.index(_name_of_step(row)) + height * (number - (len(dtypes) - 1) / 2) for row in of_it]
        gains = [row["torch_ms"] / row["ours_ms"] for row in of_it]
        axes.barh(places, gains, 0.92 * height, color=_COLORS[dtype], label=DTYPES[dtype])
        for place, gain, row in zip(places, gains, of_it, strict=True):
            words = f" {gain:.2f}×  ({_short(row['torch_ms'])} → {_short(row['ours_ms'])} ms)"
            axes.text(gain, place, words, va="center", fontsize=7.5)
    axes.axvline(1.0, color=_GREY, linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.45 * max(ratios, default=1.0))  # room for the words
    axes.set_xlabel("PyTorch's wall time / ours (longer is better)")
    axes.set_title("Steps of whole networks, wall time\n(PyTorch's → ours)")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    axes.spines[["top", "right"]].set_visible(False)


def _name_of_step(row: Row) -> str:
    return f"{row['program']}\nbatch {row['batch']}, {MODES[row['mode']]}"


def _short(value: float) -> str:
    """
    >>> [_short(value) for value in (0.5678, 12.345, 123.4)]
    ['0.57', '12.3', '123']
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
