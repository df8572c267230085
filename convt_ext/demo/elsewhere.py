"""The part of the demo for a machine without a GPU: the kernels that GPUs would run, and measured speedups.

Called by command.py. Launches nothing and times nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata

import torch
from rich import box
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import convt_ext
from convt_ext import _extension
from convt_ext.demo.models import Model
from convt_ext.demo.tables import Series, show_bars
from convt_ext.report import Line

_H200 = "H200"
_SERIES: Series = ("TF32", "nchw")

_NOTE = "Times are estimates; nothing was timed. Opt-in: cudnn.benchmark, a tuning file or backend='convt_ext'."

# The section of README.md, which is the description in a wheel's metadata.
_FIGURES = re.compile(r"<!-- figures: speed -->\n(?:<picture>.*</picture>\n)?(.*?)<!-- /figures -->", re.DOTALL)
_PICTURES = "docs/speed.svg and docs/speed-dark.svg"


def show_elsewhere(console: Console, models: Sequence[Model], gpus: Sequence[str]) -> None:
    """Prints the kernels that the layers of models would run on some GPUs, and estimated speedups for an H200 as bars.

    Args:
        models: converted models on the device meta.
        gpus: names that `convt_ext.explain` accepts.
    """
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)
        return
    title = "Kernel of each layer under PyTorch's current switches"
    table = Table("layer", *gpus, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    bars: dict[str, dict[Series, float]] = {}
    for model in models:
        table.add_section()
        table.add_row(f"[bold]{model.name}[/]")
        by_gpu = {
            gpu: list(zip(_lines(model, gpu, "auto"), _lines(model, gpu, "convt_ext"), strict=True)) for gpu in gpus
        }
        for of_layer in zip(*by_gpu.values(), strict=True):
            line = of_layer[0][0]
            table.add_row(f"{line.layer}\n{line.call.removesuffix(' float32')}", *(_cell(*both) for both in of_layer))
        for line in _lines(model, _H200, "auto"):
            speedup = _speedup(line)
            if speedup is not None:
                bars[f"{model.name}, {line.layer}"] = {_SERIES: speedup}
    console.print(table)
    console.print(_NOTE, highlight=False)
    show_bars(console, f"Speedups that the cost model expects on an NVIDIA {_H200}", bars, [_SERIES])


def _lines(model: Model, gpu: str, backend: str) -> list[Line]:
    """Returns a line for each layer of a forward pass."""
    with convt_ext.flags(backend=backend):
        return list(convt_ext.report(model.module, torch.empty(model.shape, device="meta"), device=gpu).lines)


def _cell(line: Line, opt_in: Line) -> str:
    """Describes what runs a layer, and for PyTorch's operator also the kernel that backend="convt_ext" selects."""
    if line.runs == "convt_ext":
        return f"convt_ext{_us(line.us)}, PyTorch{_us(line.other_us)}:\n{line.kernel}"
    return f"PyTorch{_us(line.us)}, opt-in{_us(opt_in.us)}:\n{opt_in.kernel}"


def _us(us: float | None) -> str:
    return "" if us is None else f" {us:.0f} µs"


def _speedup(line: Line) -> float | None:
    """Returns PyTorch's time over that of the selected implementation; None if one of them is unknown."""
    if line.runs == "torch":
        return 1.0
    return line.other_us / line.us if line.us and line.other_us else None


def show_figures(console: Console) -> None:
    """Prints the measured figures of README.md from the installed package's metadata, and the paths of its pictures."""
    try:
        of_package = metadata.metadata("convt_ext")
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        figures, urls = None, []
    else:
        figures, urls = _FIGURES.search(of_package["Description"] or ""), of_package.get_all("Project-URL") or []
    if figures is not None:
        console.print("\n[bold]Measured[/]")
        console.print(Markdown(figures[1], hyperlinks=False))
    console.print(f"Charts of the measurements: {_PICTURES} in the source tree.", highlight=False)
    for url in urls:
        console.print(url, markup=False)
