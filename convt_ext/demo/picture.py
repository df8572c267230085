"""Draws the speedups of a demo into a file. Called by command.py. Needs the package matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from convt_ext.demo.comparisons import Comparison
from convt_ext.demo.tables import LAYOUT_WORDS

_COLORS = {"nchw": "#1b6ca8", "nhwc": "#d1652c"}
_BAR = 0.4
_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 8, 16, 32)


def draw(comparisons: Sequence[Comparison], title: str, path: Path) -> bool:
    """Writes a picture with a panel for each precision and a bar for each name and layout; nothing without a time.

    The suffix of the path selects the format. Bars begin at 1, PyTorch's speed; the scale is logarithmic.
    """
    panels: dict[str, dict[str, dict[str, float]]] = {}  # by precision, name and layout
    for one in comparisons:
        if one.speedup is not None:
            panels.setdefault(one.precision, {}).setdefault(one.name, {})[one.layout] = one.speedup
    if not panels:
        return False
    figure = Figure(figsize=(6.5 * len(panels), 1.8 + 0.42 * max(map(len, panels.values()))), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, panel) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(name)
        _draw_panel(axes, panel)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return True


def _draw_panel(axes: Axes, lines: Mapping[str, Mapping[str, float]]) -> None:
    axes.set_xscale("log")
    for number, (layout, words) in enumerate(LAYOUT_WORDS.items()):
        points = {place + (number - 0.5) * _BAR: of[layout] for place, of in enumerate(lines.values()) if layout in of}
        widths = [value - 1 for value in points.values()]
        axes.barh(list(points), widths, _BAR, left=1, color=_COLORS[layout], label=words)
        for place, value in points.items():
            label = f"{value:.2f}×"
            axes.annotate(label, (max(value, 1), place), (2, 0), textcoords="offset points", va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    found = [1.0, *(value for one in lines.values() for value in one.values())]
    ticks = [tick for tick in _TICKS if min(found) / 1.1 < tick < max(found) * 1.1]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(min(found) / 1.1, max(found) ** 1.15 * 1.1)  # space for the number at the longest bar
    axes.set_yticks(range(len(lines)), list(lines), parse_math=False)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("PyTorch's time / convt_ext's")
    axes.spines[["top", "right"]].set_visible(False)
