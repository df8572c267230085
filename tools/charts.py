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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import performance
from speed_chart import CHECKOUT, DTYPES, SUMMARY, Row, cudnn_release, draw, gain, listed, measured

kernel_instances = runpy.run_path(str(CHECKOUT / "tests/kernel_instances.py"))["kernel_instances"]

RESULTS = "benchmarks/results"
CALLS, STEPS = "h200_unseen_race.json", "h200_steps.json"
# The following files are optional.
ESTIMATE = "h200_unseen_estimate.json"  # the calls of CALLS with cudnn.benchmark off
PROGRAMS = "h200_programs.json"  # compiled programs
DRAWN, EAGER = "h200_drawn_programs.json", "h200_eager_programs.json"  # random compiled programs; eager fused layers
ON_H100 = "h100_unseen_race.json", "h100_unseen_estimate.json"  # the calls of CALLS and ESTIMATE on an H100
CHARTS = {"light": "docs/speed.svg", "dark": "docs/speed-dark.svg"}
MEASURE = 'make bench-results ONLY="unseen_race unseen_estimate steps programs drawn_programs eager_programs"'

_LAYERS = "[unseen_validation.csv](benchmarks/unseen_validation.csv)"
_BLOCK = r"(<!-- figures: {name} -->\n)(.*?)(<!-- /figures -->)"


@dataclasses.dataclass(frozen=True)
class Results:
    """The existing result files of README.md and the charts. `files` maps a file's name to its contents."""

    files: dict[str, dict[str, Any]]
    digest: str | None  # of the calls and the programs, which the charts show; None if one of them is missing

    def rows(self, name: str, mode: str) -> list[Row]:
        """Returns the measured rows of a mode; none if the file is missing."""
        rows = self.files[name]["rows"] if name in self.files else []
        return [row for row in measured(rows) if row["mode"] == mode]


def read_results(folder: Path) -> Results:
    """Reads the files of a folder; exits if one is from an interrupted run."""
    files = {}
    for name in (CALLS, STEPS, PROGRAMS, DRAWN, EAGER, ESTIMATE, *ON_H100):
        if (folder / name).is_file():
            files[name] = json.loads((folder / name).read_text(encoding="utf-8"))
            if not files[name]["complete"]:
                raise SystemExit(f"convt_ext: {name} is from an interrupted run: measure it again")
    is_drawn = CALLS in files and PROGRAMS in files
    drawn = b"".join((folder / name).read_bytes() for name in (CALLS, PROGRAMS)) if is_drawn else b""
    return Results(files, hashlib.sha256(drawn).hexdigest() if is_drawn else None)


def refuse_missing_kernels(results: Results) -> None:
    """Exits if a row of the calls was measured with a kernel that the sources no longer contain."""
    existing = {None, "torch", *kernel_instances("exact"), *kernel_instances("tensor cores")}
    found = []
    for name in (CALLS, ESTIMATE):
        rows = results.files[name]["rows"] if name in results.files else []
        missing = [row["kernel"] for row in rows if row["kernel"] not in existing]
        if missing:
            found.append(f"{name}: {len(missing)} of {len(rows)} rows ({', '.join(sorted(set(missing)))})")
    if found:
        lines = "\n".join(found)
        raise SystemExit(f"convt_ext: measure these files again, their kernels no longer exist:\n{lines}")


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
    missing = " and ".join(f"`{name}`" for name in (CALLS, STEPS) if name not in results.files)
    if missing:
        text = _paragraph(
            f"The speedup of these kernels has not been measured: `{RESULTS}` does not contain {missing}. "
            f"`{MEASURE}` measures it on an H200, and `make charts` then writes the figures and the charts."
        )
        return {"speed": text}
    picture = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{CHARTS["dark"]}">'
        f'<img alt="Layers and compiled programs: PyTorch\'s time over that of convt_ext" src="{CHARTS["light"]}">'
        "</picture>"
    )
    return {"speed": "\n".join([picture, "", *(_paragraph(line, "- ") for line in _statements(results))])}


def _statements(results: Results) -> Iterator[str]:
    """Yields a statement for each kind of measurement whose files exist."""
    files, mean = results.files, SUMMARY["geometric_mean"]
    calls, summary = files[CALLS]["rows"], SUMMARY["summarise"](files[CALLS]["rows"])
    yield (
        f"**Single calls: {summary.speedup:.2f} times as fast** as PyTorch's operator. This is the geometric mean of "
        f"{summary.num_calls} calls of the {len({row['layer'] for row in calls})} held-out layers in {_LAYERS}: "
        "forward pass and both gradients, TF32 and bfloat16, NCHW and channels_last. Kernels of convt_ext run "
        f"{summary.num_ours} of them. {_slower(summary)}."
    )
    if ESTIMATE in files:
        summary = SUMMARY["summarise"](files[ESTIMATE]["rows"])
        yield (
            f"**Without `cudnn.benchmark`: {summary.speedup:.2f} times.** A cost model chooses, and kernels of "
            f"convt_ext run {summary.num_ours} of these calls. {_slower(summary)}."
        )
    if all(name in files for name in ON_H100):
        with_it, without = (SUMMARY["summarise"](files[name]["rows"]).speedup for name in ON_H100)
        dates = sorted({files[name]["date"][:10] for name in ON_H100})
        yield f"**On an H100: {with_it:.2f} times**, {without:.2f} without `cudnn.benchmark` ({', '.join(dates)})."
    fused = results.rows(EAGER, "eager")
    if fused:
        of_float, of_half = _means(fused)
        yield (
            f"**Fused layers, eager: {of_float} times (TF32) and {of_half} times (bfloat16) as fast** as PyTorch's "
            f"separate functions ({len(fused)} calls), at least {min(map(gain, fused)):.2f} times."
        )
    if PROGRAMS in files:
        yield _compiled(results)
    steps = measured(files[STEPS]["rows"], "ms")
    ratios = [gain(row, "ms") for row in steps]
    yield (
        f"**Whole steps, eager: {min(ratios):.2f} to {max(ratios):.2f} times as fast** in wall time, "
        f"{mean(ratios):.2f} in the geometric mean ({len(ratios)} steps of "
        f"{len({row['program'] for row in steps})} networks)."
    )
    yield (
        f"Measured on {_machines(results)}; unless stated otherwise with `torch.backends.cudnn.benchmark = True`, "
        "after each shape was benchmarked ([when](docs/guide.md#benchmarks))."
    )


def _compiled(results: Results) -> str:
    infer, train = (results.rows(PROGRAMS, mode) for mode in ("compiled", "train_compiled"))
    at_random = results.rows(DRAWN, "compiled")
    of_float, of_half = _means(infer)
    text = (
        f"**Compiled programs: {of_float} times (TF32) and {of_half} times (bfloat16) as fast** on the GPU as the "
        f"compiled original ({len(infer)} inference programs)"
    )
    if at_random:
        text += f"; {' and '.join(_means(at_random))} on {len(at_random)} drawn at random"
    text += (
        f". {sum(abs(gain(row) - 1) < 0.01 for row in infer)} of the {len(infer)} run at its speed within 1 %; the "
        f"slowest of all has {min(map(gain, [*infer, *at_random])):.2f} times its speed."
    )
    if train:
        steps, walls = ([gain(row, unit) for row in train] for unit in ("us", "wall_us"))
        text += (
            f" Training steps: {min(steps):.2f} to {max(steps):.2f} times on the GPU, {min(walls):.2f} to "
            f"{max(walls):.2f} in wall time."
        )
    return text


def _means(rows: Sequence[Row]) -> list[str]:
    """Returns the geometric mean of each dtype."""
    mean = SUMMARY["geometric_mean"]
    return [f"{mean(gain(row) for row in rows if row['dtype'] == dtype):.2f}" for dtype in DTYPES]


def _slower(summary: Any) -> str:
    few, _, many = summary.num_slower
    if few == 0:
        return "None is more than 2 % slower than PyTorch's operator"
    verb = "is" if few == 1 else "are"
    return f"{few} {verb} more than 2 % slower than PyTorch's operator, {many} more than 10 %"


def _machines(results: Results) -> str:
    """Names each machine once, with the dates of its files, except the H100."""
    dates: dict[str, set[str]] = {}
    for name, content in results.files.items():
        if name not in ON_H100:
            machine = f"an {content['gpu']} with torch {content['torch']} and cuDNN {cudnn_release(content)}"
            dates.setdefault(machine, set()).add(content["date"][:10])
    return listed([f"{machine} ({', '.join(sorted(found))})" for machine, found in dates.items()])


def _paragraph(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text, 150, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


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
    words = f"Drawn by tools/charts.py from {CALLS} and {PROGRAMS}, sha256 {results.digest}"
    for theme, name in CHARTS.items():
        draw(results.files[CALLS], results.files[PROGRAMS], words, CHECKOUT / name, theme)
    print(f"drew {listed(list(CHARTS.values()))} from {CALLS} and {PROGRAMS}")


if __name__ == "__main__":
    main()
