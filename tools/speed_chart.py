"""Draws docs/speed.svg and docs/speed-dark.svg: the forward pass of named held-out layers, and compiled programs.

Each line shows the times of a layer or a program for PyTorch and convt_ext. The charts contain all measured ones except
randomly generated layers, which have no names. Called by charts.py, which reads the result files. Needs the package
matplotlib.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHECKOUT = Path(__file__).resolve().parent.parent

# Loaded by path: importing the package would load torch, and the installed package may be of other sources.
SUMMARY = runpy.run_path(str(CHECKOUT / "convt_ext/bench/summary.py"))

DTYPES = {"float32": "TF32", "bfloat16": "bfloat16"}
LAYOUTS = {"nchw": "NCHW", "nhwc": "channels_last"}
_RANDOM = "random"  # prefix of the names of randomly generated layers
_COLORS = ("#1b6ca8", "#d1652c")
_THEMES = {"light": ("white", "#222222", "#dddddd"), "dark": ("#0d1117", "#e6edf3", "#30363d")}

Row = dict[str, Any]


class Line(NamedTuple):
    """A layer or a program: two pairs of times of PyTorch and convt_ext in microseconds, None if not measured."""

    name: str
    times: tuple[tuple[float, float] | None, ...]

    def gains(self) -> list[float]:
        return [theirs / ours for theirs, ours in filter(None, self.times)]


def listed(words: Sequence[str]) -> str:
    """
    >>> [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])]
    ['a', 'a and b', 'a, b and c']
    """
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def cudnn_release(content: dict[str, Any]) -> str:
    """Returns the cuDNN release of a result file.

    >>> cudnn_release({"cudnn": 91900})
    '9.19'
    """
    return f"{content['cudnn'] // 10000}.{content['cudnn'] // 100 % 100}"


def measured(rows: Sequence[Row], unit: str = "us") -> list[Row]:
    """Returns the rows with both times."""
    return [row for row in rows if row[f"ours_{unit}"] and row[f"torch_{unit}"]]


def gain(row: Row, unit: str = "us") -> float:
    """Returns PyTorch's time over that of convt_ext."""
    return row[f"torch_{unit}"] / row[f"ours_{unit}"]


def layer_lines(rows: Sequence[Row]) -> list[Line]:
    """Returns lines of the forward pass with TF32; a call that PyTorch's operator runs gets that operator's time."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        is_shown = row["direction"] == "fwd" and row["precision"] == "default" and not row["layer"].startswith(_RANDOM)
        if is_shown and SUMMARY["ratio"](row) is not None:
            ours = row["ours_us"] if SUMMARY["counts"](row) else row["torch_us"]
            found.setdefault(row["layer"], {})[row["layout"]] = (row["torch_us"], ours)
    return _lines(found, LAYOUTS)


def program_lines(rows: Sequence[Row]) -> list[Line]:
    """Returns lines of the compiled inference programs."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in measured(rows):
        if row["mode"] == "compiled":
            found.setdefault(row["program"], {})[row["dtype"]] = (row["torch_us"], row["ours_us"])
    return _lines(found, DTYPES)


def _lines(found: dict[str, dict[str, tuple[float, float]]], series: Iterable[str]) -> list[Line]:
    lines = [Line(name, tuple(times.get(one) for one in series)) for name, times in found.items()]
    return sorted(lines, key=lambda line: -SUMMARY["geometric_mean"](line.gains()))


def draw(calls: dict[str, Any], programs: dict[str, Any], description: str, path: Path, theme: str = "light") -> None:
    """Writes the chart of two result files, with a description of its source."""
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    background, ink, lines = _THEMES[theme]
    # Start from matplotlib's defaults, so that the user's settings do not change the chart.
    settings: dict[str, Any] = {
        "svg.hashsalt": "convt_ext", "svg.fonttype": "none", "font.size": 7, "axes.titlesize": 9, "text.color": ink,
        "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink, "axes.edgecolor": lines,
        "axes.facecolor": background, "grid.color": lines, "figure.facecolor": background,
    }  # fmt: skip
    with style.context(["default", settings]):
        figure = Figure(figsize=(12.0, 8.0), layout="constrained", facecolor=background)
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2)
        of_layers, of_programs = layer_lines(calls["rows"]), program_lines(programs["rows"])
        _draw_lines(left, of_layers, tuple(LAYOUTS.values()), ink)
        left.set_title(f"Forward pass of the {len(of_layers)} named layers in unseen_validation.csv, TF32")
        _draw_lines(right, of_programs, tuple(DTYPES.values()), ink)
        right.set_title(f"{len(of_programs)} compiled programs, inference")
        gpus = list(dict.fromkeys(f"an {content['gpu']}" for content in (calls, programs)))
        figure.suptitle(f"PyTorch's time / convt_ext's on {listed(gpus)}; PyTorch → convt_ext in µs", fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Description": description, "Date": None, "Creator": None})


def _draw_lines(axes: Axes, lines: Sequence[Line], series: Sequence[str], ink: str) -> None:
    """Draws a row for each line, with a marker for each of its series."""
    gains = [gain for line in lines for gain in line.gains()] or [1.0]
    for number, (name, color) in enumerate(zip(series, _COLORS, strict=True)):
        points = [(line.times[number], place) for place, line in enumerate(lines) if line.times[number]]
        values = [theirs / ours for (theirs, ours), _ in points]  # type: ignore[misc]
        places = [place for _, place in points]
        mean = f", mean {SUMMARY['geometric_mean'](values):.2f}×" if values else ""
        axes.scatter(values, places, s=16, color=color, label=f"{name}{mean}", zorder=3)
    for place, line in enumerate(lines):
        words = "   ".join("–" if times is None else f"{short(times[0])} → {short(times[1])}" for times in line.times)
        axes.text(1.01, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize=6)
    axes.axvline(1.0, color=ink, linewidth=0.9)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 8, 16) if min(gains) / 1.5 < tick < max(gains) * 1.5]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(min(0.9, min(gains) / 1.1), max(gains) * 1.1)
    axes.set_yticks(range(len(lines)), [_shortened(line.name) for line in lines], parse_math=False)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.grid(axis="both", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def _shortened(name: str) -> str:
    """
    >>> _shortened("pix2pix"), len(_shortened(40 * "a"))
    ('pix2pix', 36)
    """
    return name if len(name) <= 36 else f"{name[:35]}…"


def short(us: float) -> str:
    """
    >>> [short(value) for value in (5.678, 12.345, 123.4)]
    ['5.7', '12.3', '123']
    """
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"
