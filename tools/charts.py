"""Draws the charts in docs/, and writes docs/performance.md and the figures of README.md, from the result files.

    python tools/charts.py

Called by `make charts`, after measuring. Replaces the content of each block `<!-- figures: NAME -->` …
`<!-- /figures -->` in README.md. Rejects results of kernels that no longer exist. Drawing needs the package
matplotlib. The charts are reproducible with one release of matplotlib, and contain the digest of their result files.
tests/packaging/test_charts.py compares README.md and the charts with the result files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import runpy
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import performance
from speed_chart import DTYPES, cudnn_release, draw, listed, measured_steps

CHECKOUT = Path(__file__).resolve().parent.parent

# Loaded by path: importing the package would load torch, and the installed package may be of other sources.
SUMMARY = runpy.run_path(str(CHECKOUT / "convt_ext/bench/summary.py"))
kernel_instances = runpy.run_path(str(CHECKOUT / "tests/kernel_instances.py"))["kernel_instances"]

RESULTS = "benchmarks/results"
CALLS, STEPS = "h200_unseen_race.json", "h200_steps.json"
# The following files are optional.
ESTIMATE = "h200_unseen_estimate.json"  # the calls of CALLS with cudnn.benchmark off
PROGRAMS = "h200_programs.json"  # compiled programs
DRAWN, EAGER = "h200_drawn_programs.json", "h200_eager_programs.json"  # random compiled programs; eager fused layers
ON_H100 = "h100_unseen_race.json", "h100_unseen_estimate.json"  # the calls of CALLS and ESTIMATE on an H100
CHARTS = {"light": "docs/speed.svg", "dark": "docs/speed-dark.svg"}
_LAYERS = "[unseen_validation.csv](benchmarks/unseen_validation.csv)"
MEASURE = 'make bench-results ONLY="unseen_race unseen_estimate steps programs drawn_programs eager_programs"'


_BLOCK = r"(<!-- figures: {name} -->\n)(.*?)(<!-- /figures -->)"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Results:
    """The result files of README.md and the charts; a file that does not exist is None."""

    calls: dict[str, Any] | None
    steps: dict[str, Any] | None
    estimate: dict[str, Any] | None
    programs: dict[str, Any] | None
    drawn: dict[str, Any] | None
    eager: dict[str, Any] | None
    on_h100: list[dict[str, Any] | None]
    digest: str | None  # of the calls and the programs, which the charts show


def read_results(folder: Path) -> Results:
    """Reads the files of a folder; exits if one is from an interrupted run."""

    def read(name: str) -> dict[str, Any] | None:
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if content is not None and not content["complete"]:
            raise SystemExit(f"convt_ext: {name} is from an interrupted run: measure it again")
        return content

    calls, programs = read(CALLS), read(PROGRAMS)
    whole = calls is not None and programs is not None
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in (CALLS, PROGRAMS))) if whole else None
    on_h100 = [read(name) for name in ON_H100]
    others = read(DRAWN), read(EAGER), on_h100
    return Results(calls, read(STEPS), read(ESTIMATE), programs, *others, digest.hexdigest() if digest else None)


def refuse_missing_kernels(results: Results) -> None:
    """Exits if a row of the calls was measured with a kernel that the sources no longer contain."""
    existing = {None, "torch", *kernel_instances("exact"), *kernel_instances("tensor cores")}
    named = ((CALLS, results.calls), (ESTIMATE, results.estimate))
    found = []
    for name, content in named:
        rows = content["rows"] if content else []
        missing = [row["kernel"] for row in rows if row["kernel"] not in existing]
        if missing:
            found.append(f"{name}: {len(missing)} of {len(rows)} rows ({', '.join(sorted(set(missing)))})")
    if found:
        raise SystemExit(
            "convt_ext: these result files contain removed kernels; measure them again (make bench-results):\n"
            + "\n".join(found)
        )


def digest_in(chart: str) -> str | None:
    """Returns the digest of a chart's result files from its description."""
    found = re.search(r"\bsha256 ([0-9a-f]{64})\b", chart)
    return found[1] if found else None


def rewrite(text: str, blocks: dict[str, str]) -> str:
    """Returns the text with new content in its blocks.

    >>> rewrite("a\\n<!-- figures: speed -->\\nold\\n<!-- /figures -->\\nb", {"speed": "new"})
    'a\\n<!-- figures: speed -->\\nnew\\n<!-- /figures -->\\nb'

    Raises:
        ValueError: the text does not contain a block exactly once.
    """
    for name, content in blocks.items():
        pattern = re.compile(_BLOCK.format(name=re.escape(name)), re.DOTALL)
        text, number = pattern.subn(lambda match, content=content: f"{match[1]}{content}\n{match[3]}", text)  # type: ignore[misc]
        if number != 1:
            raise ValueError(f"got {number} blocks `<!-- figures: {name} -->` … `<!-- /figures -->`, expected one")
    return text


def figures(results: Results) -> dict[str, str]:
    """Returns the text of each block of README.md by its name."""
    return {"speed": _speed(results)}


def _speed(results: Results) -> str:
    calls, steps = results.calls, results.steps
    if calls is None or steps is None:
        missing = " and ".join(f"`{name}`" for name, found in ((CALLS, calls), (STEPS, steps)) if found is None)
        return _paragraph(
            f"The speedup of these kernels has not been measured: `{RESULTS}` does not contain {missing}. "
            f"`{MEASURE}` measures it on an H200, and `make charts` then writes the figures and the charts."
        )
    summary = SUMMARY["summarise"](calls["rows"])
    ratios = [row["torch_ms"] / row["ours_ms"] for row in measured_steps(steps["rows"])]
    programs = list(dict.fromkeys(row["program"] for row in steps["rows"]))
    layers = len({row["layer"] for row in calls["rows"]})
    lines = [
        f"**Single calls: {summary.speedup:.2f} times as fast** as PyTorch's operator. This is the geometric mean of "
        f"{summary.num_calls} calls of the {layers} held-out layers in {_LAYERS}: forward pass and both gradients, "
        f"TF32 and bfloat16, NCHW and channels_last. Kernels of convt_ext run {summary.num_ours} of them. "
        f"{_slower(summary)}.",
        *_without_measuring(results.estimate),
        *_on_h100(results.on_h100),
        *_fused(results.eager),
        *_compiled(results.programs, results.drawn),
        f"**Whole steps, eager: {min(ratios):.2f} to {max(ratios):.2f} times as fast** in wall time, "
        f"{SUMMARY['geometric_mean'](ratios):.2f} in the geometric mean ({len(ratios)} steps of {len(programs)} "
        "networks).",
        f"Measured on {_machines(_measured_here(results))}; unless stated otherwise with "
        "`torch.backends.cudnn.benchmark = True`, after each shape was benchmarked "
        "([when](docs/guide.md#benchmarks)).",
    ]
    picture = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{CHARTS["dark"]}">'
        f'<img alt="Layers and compiled programs: PyTorch\'s time over that of convt_ext" src="{CHARTS["light"]}">'
        "</picture>"
    )
    return "\n".join([picture, "", *(_paragraph(line, "- ") for line in lines)])


def _measured_here(results: Results) -> list[dict[str, Any] | None]:
    return [results.calls, results.steps, results.programs, results.drawn, results.eager, results.estimate]


def _rows(content: dict[str, Any] | None, mode: str) -> list[Row]:
    """Returns the measured rows of a mode."""
    rows = content["rows"] if content else []
    return [row for row in rows if row["mode"] == mode and row["ours_us"] and row["torch_us"]]


def _gains(rows: Sequence[Row]) -> list[float]:
    return [row["torch_us"] / row["ours_us"] for row in rows]


def _means(rows: Sequence[Row]) -> list[str]:
    """Returns the geometric mean of each dtype."""
    mean = SUMMARY["geometric_mean"]
    return [f"{mean(_gains([row for row in rows if row['dtype'] == dtype])):.2f}" for dtype in DTYPES]


def _fused(eager: dict[str, Any] | None) -> list[str]:
    rows = _rows(eager, "eager")
    if not rows:
        return []
    of_float, of_half = _means(rows)
    return [
        f"**Fused layers, eager: {of_float} times (TF32) and {of_half} times (bfloat16) as fast** as PyTorch's "
        f"separate functions ({len(rows)} calls), at least {min(_gains(rows)):.2f} times."
    ]


def _compiled(programs: dict[str, Any] | None, drawn: dict[str, Any] | None) -> list[str]:
    if programs is None:
        return []
    infer, train, at_random = (
        *(_rows(programs, mode) for mode in ("compiled", "train_compiled")), _rows(drawn, "compiled")
    )  # fmt: skip
    of_float, of_half = _means(infer)
    same = sum(abs(gain - 1) < 0.01 for gain in _gains(infer))
    text = (
        f"**Compiled programs: {of_float} times (TF32) and {of_half} times (bfloat16) as fast** on the GPU as the "
        f"compiled original ({len(infer)} inference programs)"
    )
    if at_random:
        text += f"; {' and '.join(_means(at_random))} on {len(at_random)} drawn at random"
    text += (
        f". {same} of the {len(infer)} run at its speed within 1 %; the slowest of all has "
        f"{min(_gains([*infer, *at_random])):.2f} times its speed."
    )
    if train:
        steps, walls = ([row[f"torch_{k}us"] / row[f"ours_{k}us"] for row in train] for k in ("", "wall_"))
        text += (
            f" Training steps: {min(steps):.2f} to {max(steps):.2f} times on the GPU, {min(walls):.2f} to "
            f"{max(walls):.2f} in wall time."
        )
    return [text]


def _without_measuring(estimate: dict[str, Any] | None) -> list[str]:
    if estimate is None:
        return []
    summary = SUMMARY["summarise"](estimate["rows"])
    return [
        f"**Without `cudnn.benchmark`: {summary.speedup:.2f} times.** A cost model chooses, and kernels of convt_ext "
        f"run {summary.num_ours} of these calls. {_slower(summary)}."
    ]


def _on_h100(contents: Sequence[dict[str, Any] | None]) -> list[str]:
    if None in contents:
        return []
    with_it, without = (SUMMARY["summarise"](content["rows"]).speedup for content in contents if content)
    dates = sorted({content["date"][:10] for content in contents if content})
    return [f"**On an H100: {with_it:.2f} times**, {without:.2f} without `cudnn.benchmark` ({', '.join(dates)})."]


def _slower(summary: Any) -> str:
    few, _, many = summary.num_slower
    if few == 0:
        return "None is more than 2 % slower than PyTorch's operator"
    verb = "is" if few == 1 else "are"
    return f"{few} {verb} more than 2 % slower than PyTorch's operator, {many} more than 10 %"


def _machines(contents: Sequence[dict[str, Any] | None]) -> str:
    """Names each machine once, with the dates of its files."""
    dates: dict[str, set[str]] = {}
    for content in filter(None, contents):
        machine = f"an {content['gpu']} with torch {content['torch']} and cuDNN {cudnn_release(content)}"
        dates.setdefault(machine, set()).add(content["date"][:10])
    return listed([f"{machine} ({', '.join(sorted(found))})" for machine, found in dates.items()])


def _paragraph(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text, 150, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def draw_charts(results: Results, folder: Path) -> None:
    """Draws the charts for light and dark pages; calls and programs must exist."""
    assert results.calls is not None
    assert results.programs is not None
    words = f"Drawn by tools/charts.py from {CALLS} and {PROGRAMS}, sha256 {results.digest}"
    for theme, name in CHARTS.items():
        draw(results.calls, results.programs, words, folder / name, theme)


def main() -> None:
    results = read_results(CHECKOUT / RESULTS)
    refuse_missing_kernels(results)
    readme = CHECKOUT / "README.md"
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), figures(results)), encoding="utf-8")
    (CHECKOUT / "docs/performance.md").write_text(performance.text(CHECKOUT / RESULTS), encoding="utf-8")
    print("wrote the figures of README.md and docs/performance.md")
    if results.digest is None:
        print(f"no chart was drawn: {CALLS} or {PROGRAMS} is missing in {RESULTS}; `{MEASURE}` measures them")
        return
    draw_charts(results, CHECKOUT)
    print(f"drew {listed(list(CHARTS.values()))} from {CALLS} and {PROGRAMS}")


if __name__ == "__main__":
    main()
