"""Draws docs/speed.svg and writes the figures of README.md, both from the benchmark's result files.

    python tools/charts.py

Called by `make charts`, after measuring. README.md has a block `<!-- figures: NAME -->` … `<!-- /figures -->` for each
text that is made here, so no figure in it is typed by hand. Each figure names the list of layers and the GPU. Rows of
kernels that no longer exist are refused. The chart needs the package matplotlib. It is the same for
the same results (a matplotlib of another release may draw other lines), and it holds the digest of what it was drawn
from. tests/packaging/test_charts.py compares both with the result files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import runpy
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speed_chart import DTYPES, draw, listed, measured_steps

CHECKOUT = Path(__file__).resolve().parent.parent

# By its path: the package would load torch, and may be installed from other sources.
SUMMARY = runpy.run_path(str(CHECKOUT / "convt_ext/bench/summary.py"))
kernel_instances = runpy.run_path(str(CHECKOUT / "tests/kernel_instances.py"))["kernel_instances"]

RESULTS = "benchmarks/results"
CALLS, STEPS = "h200_unseen_race.json", "h200_steps.json"  # what the chart and the headline are of
ESTIMATE = "h200_unseen_estimate.json"  # the same calls without measuring; may be missing
PROGRAMS = "h200_programs.json"  # compiled programs; may be missing
NETWORKS = ("h200_model_layers_nchw.json", "h200_model_layers_nhwc.json")  # what is said of TF32
CHART = "docs/speed.svg"
_LAYERS = "[unseen_validation.csv](benchmarks/unseen_validation.csv)"
MEASURE = 'make bench-results ONLY="unseen_race unseen_estimate steps"'


# Relative errors of TF32 lie above it and those of float32 below it, with a decade free on either side.
_FLOAT32_ERROR = 2e-5

_BLOCK = r"(<!-- figures: {name} -->\n)(.*?)(<!-- /figures -->)"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Results:
    """The result files that README.md and the chart are about; None stands for one that nobody has measured yet."""

    calls: dict[str, Any] | None
    steps: dict[str, Any] | None
    estimate: dict[str, Any] | None
    programs: dict[str, Any] | None
    networks: tuple[dict[str, Any] | None, ...]
    digest: str | None  # of the contents of the first two, which are what the chart shows


def read_results(folder: Path) -> Results:
    """Reads the files of a folder; an interrupted run ends the program."""

    def read(name: str) -> dict[str, Any] | None:
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if content is not None and not content["complete"]:
            raise SystemExit(f"convt_ext: {name} is of an interrupted run: measure it again")
        return content

    calls, steps = read(CALLS), read(STEPS)
    whole = calls is not None and steps is not None
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in (CALLS, STEPS))) if whole else None
    networks = tuple(map(read, NETWORKS))
    return Results(calls, steps, read(ESTIMATE), read(PROGRAMS), networks, digest.hexdigest() if digest else None)


def refuse_missing_kernels(results: Results) -> None:
    """Ends the program where a row was measured with a kernel that the sources no longer contain."""
    existing = {None, "torch", *kernel_instances("exact"), *kernel_instances("tensor cores")}
    named = zip((CALLS, ESTIMATE, *NETWORKS), (results.calls, results.estimate, *results.networks), strict=True)
    found = []
    for name, content in named:
        rows = content["rows"] if content else []
        missing = [row["kernel"] for row in rows if row["kernel"] not in existing]
        if missing:
            found.append(f"{name}: {len(missing)} of {len(rows)} rows ({', '.join(sorted(set(missing)))})")
    if found:
        raise SystemExit(
            "convt_ext: these result files name kernels that do not exist; measure them again (make bench-results):\n"
            + "\n".join(found)
        )


def digest_in(chart: str) -> str | None:
    """The digest of the results that a chart was drawn from, which stands in its description."""
    found = re.search(r"\bsha256 ([0-9a-f]{64})\b", chart)
    return found[1] if found else None


def rewrite(text: str, blocks: dict[str, str]) -> str:
    """The text with other contents in its blocks.

    >>> rewrite("a\\n<!-- figures: speed -->\\nold\\n<!-- /figures -->\\nb", {"speed": "new"})
    'a\\n<!-- figures: speed -->\\nnew\\n<!-- /figures -->\\nb'

    Raises:
        ValueError: a block is missing, or there are two.
    """
    for name, content in blocks.items():
        pattern = re.compile(_BLOCK.format(name=re.escape(name)), re.DOTALL)
        text, number = pattern.subn(lambda match, content=content: f"{match[1]}{content}\n{match[3]}", text)  # type: ignore[misc]
        if number != 1:
            raise ValueError(f"got {number} blocks `<!-- figures: {name} -->` … `<!-- /figures -->`, expected one")
    return text


def figures(results: Results) -> dict[str, str]:
    """What README.md says by the results: name of a block -> its text."""
    return {"speed": _speed(results), "float32": _float32(results)}


def _speed(results: Results) -> str:
    calls, steps = results.calls, results.steps
    if calls is None or steps is None:
        missing = " and ".join(f"`{name}`" for name, found in ((CALLS, calls), (STEPS, steps)) if found is None)
        return _paragraph(
            f"What a user gains has not been measured for these kernels yet: {missing} of `{RESULTS}` will hold it. "
            f"`{MEASURE}` measures it on an H200, and `make charts` then writes the figures and the chart here."
        )
    rows = calls["rows"]
    summary = SUMMARY["summarise"](rows)
    ratios = [row["torch_ms"] / row["ours_ms"] for row in measured_steps(steps["rows"])]
    programs = list(dict.fromkeys(row["program"] for row in steps["rows"]))
    layers = len({row["layer"] for row in rows})
    first = summary.median_first_call_ms
    lines = [
        f"**Calls: {summary.speedup:.2f} times as fast** as PyTorch's operator on an {calls['gpu']}. This is the "
        f"geometric mean over all {summary.num_calls} calls of the {layers} held-out layers in {_LAYERS}: forward "
        "passes and both gradients, TF32 and bfloat16, NCHW and channels_last. A call that PyTorch's operator runs "
        f"counts as 1. All together take {_ms(summary.ours_ms)} ms instead of {_ms(summary.torch_ms)} ms.",
        f"**Our kernels run {summary.num_ours} of these calls**, {summary.speedup_of_ours:.2f} times as fast in the "
        f"geometric mean. {_slower(summary)}; the slowest has {summary.worst:.2f} times PyTorch's speed.",
        f"**Whole steps: {min(ratios):.2f} to {max(ratios):.2f} times as fast** in wall time on an {steps['gpu']}, "
        f"{SUMMARY['geometric_mean'](ratios):.2f} in the geometric mean. These are {len(ratios)} training and "
        f"inference steps of {listed(programs)} (`python -m convt_ext bench --steps`), each converted by "
        "`convt_ext.convert`.",
        *_compiled(results.programs),
        *_without_measuring(results.estimate),
        f"Measured on {_machines([calls, steps, results.programs])}, all else with `cudnn.benchmark = True` and after "
        "each shape was benchmarked"
        + ("." if first is None else f", which takes {first:.0f} ms in the median.")
        + " A program benchmarks a shape [after 700 calls or more](docs/choosing.md#benchmarks).",
    ]
    picture = f"![PyTorch's time over ours: every call, sorted, and whole steps of networks]({CHART})"
    return "\n".join([picture, "", *(_paragraph(line, "- ") for line in lines)])


def _compiled(programs: dict[str, Any] | None) -> list[str]:
    if programs is None:
        return []
    infer, train = (
        [row for row in programs["rows"] if row["mode"] == mode and row["ours_us"] and row["torch_us"]]
        for mode in ("compiled", "train_compiled")
    )
    of_dtypes = {dtype: [r["torch_us"] / r["ours_us"] for r in infer if r["dtype"] == dtype] for dtype in DTYPES}
    mean, gains = SUMMARY["geometric_mean"], [row["torch_us"] / row["ours_us"] for row in infer + train]
    same = sum(abs(gain - 1) < 0.01 for gain in gains[: len(infer)])
    return [
        f"**Under `torch.compile`: {mean(of_dtypes['float32']):.2f} times (TF32) and "
        f"{mean(of_dtypes['bfloat16']):.2f} times (bfloat16) as fast** as the compiled original on the GPU, an "
        f"{programs['gpu']}: {len(infer)} programs for inference (`python -m convt_ext bench --programs`), layers with "
        f"what follows them. {same} of them run at the original's speed within 1 %, nearly all because they are the "
        f"original; the slowest has {min(gains):.2f} times its speed. Training steps of "
        f"{listed(list(dict.fromkeys(row['program'] for row in train)))} are {min(gains[len(infer) :]):.2f} to "
        f"{max(gains[len(infer) :]):.2f} times as fast on the GPU, and {min(map(_wall, train)):.2f} to "
        f"{max(map(_wall, train)):.2f} times in wall time."
    ]


def _wall(row: Row) -> float:
    return float(row["torch_wall_us"] / row["ours_wall_us"])


def _without_measuring(estimate: dict[str, Any] | None) -> list[str]:
    if estimate is None:
        return []
    summary = SUMMARY["summarise"](estimate["rows"])
    return [
        "With `torch.backends.cudnn.benchmark` off, a cost model picks the kernel and nothing is measured: then all "
        f"{summary.num_calls} calls of {_LAYERS} are {summary.speedup:.2f} times as fast on an {estimate['gpu']}. Our "
        f"kernels run {summary.num_ours} of them. {_slower(summary)}."
    ]


def _slower(summary: Any) -> str:
    few, _, many = summary.num_slower
    if few == 0:
        return "None of these is more than 2 % slower than PyTorch's operator"
    verb = "is" if few == 1 else "are"
    return f"{few} of these {verb} more than 2 % slower than PyTorch's operator, and {many} more than 10 %"


def _float32(results: Results) -> str:
    if None in results.networks:
        return _paragraph("How often PyTorch does so has not been measured yet.")
    rows = [row for content in results.networks if content for row in content["rows"]]
    ours = [row for row in rows if row["precision"] == "default" and SUMMARY["counts"](row)]
    ours = [row for row in ours if row["error"] is not None and row["torch_error"] is not None]
    quiet = [row["error"] for row in ours if row["torch_error"] < _FLOAT32_ERROR <= row["error"]]
    gpus = listed(list(dict.fromkeys(f"an {content['gpu']}" for content in results.networks if content)))
    errors = f": its error is below {_number(_FLOAT32_ERROR)} there, ours {_number(statistics.median(quiet))}"
    return _paragraph(
        f"In {len(quiet)} of {len(ours)} TF32 calls of ours PyTorch had quietly computed in float32"
        f"{errors if quiet else ''} (forward passes and gradients of "
        f"[model_layers.csv](benchmarks/model_layers.csv) on {gpus}, {listed([f'`{name}`' for name in NETWORKS])})."
    )


def _machines(contents: Sequence[dict[str, Any] | None]) -> str:
    """Where and when the files were measured, each machine once."""
    dates: dict[str, set[str]] = {}
    for content in filter(None, contents):
        cudnn = f"{content['cudnn'] // 10000}.{content['cudnn'] // 100 % 100}"
        machine = f"an {content['gpu']} with torch {content['torch']} and cuDNN {cudnn}"
        dates.setdefault(machine, set()).add(content["date"][:10])
    return listed([f"{machine} ({', '.join(sorted(found))})" for machine, found in dates.items()])


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _number(value: float) -> str:
    """
    >>> [_number(value) for value in (2e-5, 2.93e-4)]
    ['2e-5', '3e-4']
    """
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


def _paragraph(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text, 150, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def draw_chart(results: Results, path: Path) -> None:
    """Draws the chart of the results, which must be there."""
    assert results.calls is not None
    assert results.steps is not None
    draw(
        results.calls,
        results.steps,
        f"Drawn by tools/charts.py from {CALLS} and {STEPS}, sha256 {results.digest}",
        path,
    )


def main() -> None:
    results = read_results(CHECKOUT / RESULTS)
    refuse_missing_kernels(results)
    readme = CHECKOUT / "README.md"
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), figures(results)), encoding="utf-8")
    print("README.md has the figures of the result files")
    if results.digest is None:
        print(f"{CHART} is not drawn: {CALLS} or {STEPS} is missing in {RESULTS}; `{MEASURE}` measures them")
        return
    draw_chart(results, CHECKOUT / CHART)
    print(f"{CHART} is drawn from {CALLS} and {STEPS}")


if __name__ == "__main__":
    main()
