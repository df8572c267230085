"""The part of the demo for a machine without a GPU: the kernels that GPUs would run, and the estimated times.

Called by command.py. Launches nothing and times nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich import box
from rich.console import Console
from rich.table import Table

import convt_ext
from convt_ext import _extension
from convt_ext.demo.models import Model
from convt_ext.report import Line

_NOTE = "Times are estimates; nothing was timed. Opt-in: cudnn.benchmark, a tuning file or backend='convt_ext'."


def show_elsewhere(console: Console, models: Sequence[Model], gpus: Sequence[str]) -> None:
    """Prints the kernels that the layers of models would run on some GPUs.

    Args:
        models: converted models on the device meta.
        gpus: names that `convt_ext.explain` accepts.
    """
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)
        return
    title = "Kernel of each layer under PyTorch's current switches"
    table = Table("layer", *gpus, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for model in models:
        table.add_section()
        table.add_row(f"[bold]{model.name}[/]")
        chosen = [_lines(model, gpu, "auto") for gpu in gpus]
        opt_in = [_lines(model, gpu, "convt_ext") for gpu in gpus]
        for index, line in enumerate(chosen[0]):
            cells = [_cell(of_gpu[index], others[index]) for of_gpu, others in zip(chosen, opt_in, strict=True)]
            table.add_row(f"{line.layer}\n{line.call.removesuffix(' float32')}", *cells)
    console.print(table)
    console.print(_NOTE, highlight=False)


def _lines(model: Model, gpu: str, backend: str) -> Sequence[Line]:
    """Returns a line for each layer of a forward pass."""
    with convt_ext.flags(backend=backend):
        return convt_ext.report(model.module, torch.empty(model.shape, device="meta"), device=gpu).lines


def _cell(line: Line, opt_in: Line) -> str:
    """Describes what runs a layer, and for PyTorch's operator also the kernel that backend="convt_ext" selects."""
    if line.runs == "convt_ext":
        return f"convt_ext{_us(line.us)}, PyTorch{_us(line.other_us)}:\n{line.kernel}"
    return f"PyTorch{_us(line.us)}, opt-in{_us(opt_in.us)}:\n{opt_in.kernel}"


def _us(us: float | None) -> str:
    return "" if us is None else f" {us:.0f} µs"
