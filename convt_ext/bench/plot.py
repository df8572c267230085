"""Draws the rows of a run: each layer's times as multiples of its floor, for convt_ext and PyTorch.

Called by command.py; the demo's picture.py uses `write_picture`. Needs the package matplotlib (extra ``bench``);
imported only to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from convt_ext.bench.runner import Row

_BAR = 0.4
_OURS, _TORCH = "#2a7f62", "#b8b8b8"


def draw(rows: Sequence[Row], title: str, path: Path) -> int:
    """Writes a picture (the suffix selects the format) with one panel per direction, precision and layout.

    Skips rows without a floor or a time of convt_ext. Returns the number of drawn rows; writes nothing if it is 0.
    """
    panels: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row["floor_us"] and row["ours_us"]:
            panels.setdefault((row["direction"], row["precision"], row["layout"]), []).append(row)
    if not panels:
        return 0
    write_picture({" ".join(key): panel for key, panel in panels.items()}, _draw_panel, 5.0, title, path)
    return sum(len(panel) for panel in panels.values())


def write_picture(
    panels: Mapping[str, Any], draw_panel: Callable[[Axes, Any], None], width: float, title: str, path: Path
) -> None:
    """Writes a picture of panels next to each other, each `width` inches wide with its key as title."""
    figure = Figure(figsize=(width * len(panels), 1.8 + 0.42 * max(map(len, panels.values()))), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, panel) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(name)
        draw_panel(axes, panel)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_panel(axes: Axes, panel: Sequence[Row]) -> None:
    places = range(len(panel))
    ours = [row["ours_us"] / row["floor_us"] for row in panel]
    theirs = [(row["torch_us"] or 0.0) / row["floor_us"] for row in panel]
    axes.barh([place - _BAR / 2 for place in places], ours, _BAR, color=_OURS, label="convt_ext")
    axes.barh([place + _BAR / 2 for place in places], theirs, _BAR, color=_TORCH, label="PyTorch")
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    # convt_ext may run PyTorch's operator; such rows are marked.
    names = [row["layer"] + (" (torch)" if row["kernel"] == "torch" else "") for row in panel]
    axes.set_yticks(list(places), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time / floor (shorter is better)")
