"""Generates the text of docs/performance.md from the benchmark's result files.

Called by charts.py, which `make charts` runs. Each table is preceded by its file, GPU, torch, cuDNN and date.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from speed_chart import LAYOUTS, SUMMARY, Row, cudnn_release, gain, measured, short

_HEAD = """# Performance

`make charts` writes this page from the result files in `benchmarks/results`. Times are medians of the GPU's time in
microseconds unless stated otherwise; both sides are measured in one run, at equal precision
([benchmarks/README.md](../benchmarks/README.md)). Quotients are PyTorch's time over that of convt_ext: above 1
convt_ext is faster. Means are geometric. A call that PyTorch's operator runs counts as 1.
"""

_LAYERS = "[unseen_validation.csv](../benchmarks/unseen_validation.csv)"
_CALLS = {
    "unseen_race": f"Single calls with `cudnn.benchmark` on: the 70 held-out layers of {_LAYERS}",
    "unseen_estimate": "The same layers with `cudnn.benchmark` off: a cost model chooses",
    "model_layers_nchw": "Layers of networks ([model_layers.csv](../benchmarks/model_layers.csv)), NCHW",
    "model_layers_nhwc": "Layers of networks, channels_last",
}
_NAMES = {"fwd": "forward", "dx": "gradient of the input", "dw": "gradient of the weight"}
_PRECISIONS = {"default": "float32 (TF32 on)", "bf16": "bfloat16"}


def text(folder: Path) -> str:
    """Returns the page with a section for each existing file."""
    sections = [_HEAD]
    for name, title in _CALLS.items():
        sections += _section(title, folder, name, _calls)
    sections += _section("Layers with fused functions, eager", folder, "eager_programs", _programs)
    sections += _section("Compiled programs", folder, "programs", _programs)
    sections += _section("Compiled programs that were drawn at random", folder, "drawn_programs", _programs)
    sections += _section("Whole steps, eager, wall time", folder, "steps", _steps)
    return "\n".join(sections)


def _section(title: str, folder: Path, name: str, table: Callable[[Sequence[Row]], Iterable[str]]) -> list[str]:
    """Returns a section with a table for each GPU."""
    found = [f"## {title}", ""]
    for gpu in ("h200", "h100"):
        path = folder / f"{gpu}_{name}.json"
        if path.is_file():
            content = json.loads(path.read_text(encoding="utf-8"))
            run = f"{content['gpu']}, torch {content['torch']}, cuDNN {cudnn_release(content)}, {content['date'][:10]}"
            found += [f"`{path.name}`: {run}.", "", *table(content["rows"]), ""]
    return found if len(found) > 2 else []


def _table(header: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """
    >>> _table("a | b", [["1", "2"]])
    ['| a | b |', '|---|---|', '| 1 | 2 |']
    """
    columns = header.count("|") + 1
    return [f"| {header} |", "|" + "---|" * columns, *(f"| {' | '.join(row)} |" for row in rows)]


def _calls(rows: Sequence[Row]) -> list[str]:
    groups = {"all": list(rows)}
    for key, names in {"direction": _NAMES, "precision": _PRECISIONS, "layout": LAYOUTS}.items():
        of_key = {words: [row for row in rows if row[key] == value] for value, words in names.items()}
        groups |= of_key if sum(map(bool, of_key.values())) > 1 else {}
    lines = []
    for name, of_group in groups.items():
        found = SUMMARY["summarise"](of_group)
        if found is not None:
            ours = [f"{found.speedup_of_ours:.2f}", f"{found.worst:.2f}"] if found.num_ours else ["–", "–"]
            slower = [str(found.num_slower[0]), str(found.num_slower[-1])]
            lines.append([name, str(found.num_calls), str(found.num_ours), f"{found.speedup:.2f}", *ours, *slower])
    return _table(
        "calls | number | by convt_ext | mean of all | mean of convt_ext's | least | > 2 % slower | > 10 % slower",
        lines,
    )


def _programs(rows: Sequence[Row]) -> list[str]:
    rows = measured(rows)
    lines = []
    for key in dict.fromkeys((row["program"], row["mode"]) for row in rows):
        cells = [key[0] + (", training step" if key[1] == "train_compiled" else "")]
        for dtype in ("float32", "bfloat16"):
            of_it = [row for row in rows if (row["program"], row["mode"]) == key and row["dtype"] == dtype]
            cells += [f"{short(r['torch_us'])} → {short(r['ours_us'])} ({gain(r):.2f})" for r in of_it] or ["–"]
        lines.append(cells)
    mean = SUMMARY["geometric_mean"]
    means = [
        f"{mode.replace('train_compiled', 'training steps').replace('compiled', 'inference')} "
        f"{dtype} {mean(map(gain, of_it)):.2f}"
        for mode in ("eager", "compiled", "train_compiled")
        for dtype in ("float32", "bfloat16")
        if (of_it := [row for row in rows if (row["mode"], row["dtype"]) == (mode, dtype)])
    ]
    return [f"Means: {', '.join(means)}.", "", *_table("program | float32 (TF32) | bfloat16", lines)]


def _steps(rows: Sequence[Row]) -> list[str]:
    def time(row: Row, side: str) -> str:
        return f"{row[f'{side}_ms']:.2f} ({' to '.join(f'{one:.2f}' for one in row[f'{side}_range_ms'])})"

    lines = []
    for row in measured(rows, "ms"):
        mode = "training" if row["mode"] == "train" else "inference"
        name = f"{row['program']}, batch {row['batch']}, {mode}"
        lines.append([name, row["dtype"], time(row, "torch"), time(row, "ours"), f"{gain(row, 'ms'):.2f}"])
    return _table("network | dtype | PyTorch, ms (range) | convt_ext, ms (range) | quotient", lines)
