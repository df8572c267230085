"""The chart and the figures of README.md: made of the result files, and of those that are kept."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

if not (CHECKOUT / "benchmarks").is_dir():
    pytest.skip("a source distribution has no measurements", allow_module_level=True)

RUN = {"gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "cudnn": 91900, "date": "2026-01-02T03:04:05", "complete": True}
README = "begins\n<!-- figures: speed -->\n<!-- /figures -->\nends\n"


def call(ours_us, torch_us, chosen="ours", direction="fwd", **others):
    return {
        "layer": "one", "direction": direction, "precision": "default", "layout": "nchw", "ours_us": ours_us,
        "torch_us": torch_us, "chosen": chosen, "kernel": "torch" if chosen == "torch" else "flat_tf32_2x2",
        "error": 3e-4, "torch_error": 3e-4, "first_call_ms": 20.0, "retimed": False, **others,
    }  # fmt: skip


def step(program, ours_ms, torch_ms, **others):
    return {"program": program, "dtype": "float32", "batch": 4, "mode": "train", "ours_ms": ours_ms,
            "ours_range_ms": [1.0, 2.0], "torch_range_ms": [3.0, 4.0],
            "torch_ms": torch_ms, **others}  # fmt: skip


# Gains of 4, 1 (PyTorch's; its second timing differs by chance) and 1 / 1.25, with unequal weights in the total.
CALLS = [
    call(10_000.0, 40_000.0),
    call(7_000.0, 5_000.0, "torch", direction="dx", layer="two"),
    call(50_000.0, 40_000.0, direction="dw", precision="bf16"),
]
STEPS = [
    step("Net", 10.0, 20.0),
    step("Net", 10.0, 18.0, dtype="bfloat16"),
    step("Other", 1.0, 0.9, mode="infer"),
    step("Other", None, None, mode="infer", dtype="bfloat16", failure="out of memory"),
]


def program(mode, dtype, ours, theirs, name="Net"):
    wall = {"ours_wall_us": 10.0, "torch_wall_us": 11.0} if mode == "train_compiled" else {}
    return {"program": name, "mode": mode, "dtype": dtype, "ours_us": ours, "torch_us": theirs, **wall}


PROGRAMS = [program("compiled", "float32", 10.0, 40.0), program("compiled", "bfloat16", 8.0, 4.0)]
PROGRAMS.append(program("train_compiled", "float32", 10.0, 12.0))


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "tools"))
    return importlib.import_module("charts")


@pytest.fixture
def tree(tool, monkeypatch, tmp_path):
    """A checkout with README.md and made-up results."""
    monkeypatch.setattr(tool, "CHECKOUT", tmp_path)
    (tmp_path / "README.md").write_text(README)
    folder = tmp_path / tool.RESULTS
    folder.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    for name, rows in {tool.CALLS: CALLS, tool.STEPS: STEPS, tool.PROGRAMS: PROGRAMS}.items():
        (folder / name).write_text(json.dumps({**RUN, "rows": rows}))
    return tmp_path


@pytest.mark.parametrize("name", ["charts", "performance", "speed_chart"])
def test_examples(tool, name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def by_dtype(mode, *pairs):
    """Rows of a program in float32 and in bfloat16, with these times of convt_ext and PyTorch."""
    return [program(mode, dtype, *pair) for dtype, pair in zip(("float32", "bfloat16"), pairs, strict=True)]


# Result files in addition to those of `tree`, and statements of README.md for them.
FIGURES = {
    "the least": (
        lambda tool: {},
        ["Single calls: 1.47 times", "3 calls of the 2 held-out layers", "run 2 of them", "1 is more than 2 % slower",
         "1 more than 10 %", "Whole steps, eager: 0.90 to 2.00 times", "1.48 in the geometric mean",
         "3 steps of 2 networks", "an NVIDIA H200 with torch 2.11.0+cu130 and cuDNN 9.19 (2026-01-02)"],
    ),
    "none is slower": (lambda tool: {tool.CALLS: [call(1.0, 1.0)]}, ["None is more than 2 % slower"]),
    "the cost model": (
        lambda tool: {tool.ESTIMATE: [call(1.0, 1.2), call(1.2, 1.0)]},
        ["Without `cudnn.benchmark`: 1.00 times", "run 2 of these calls. 1 is more than 2 % slower"],
    ),
    "an H100": (
        lambda tool: {name: [call(us, 2.5)] for name, us in zip(tool.ON_H100, (1.0, 2.0), strict=True)},
        ["On an H100: 2.50 times**, 1.25 without `cudnn.benchmark` (2026-01-02)"],
    ),
    "compiled programs": (
        lambda tool: {tool.PROGRAMS: [
            *by_dtype("compiled", (10.0, 40.0), (20.0, 10.0)), program("compiled", "float32", 10.0, 10.05),
            program("eager", "bfloat16", 1.0, 99.0), program("train_compiled", "float32", 10.0, 12.0),
            {**program("compiled", "float32", None, 1.0), "failure": "no memory"},
        ]},
        ["Compiled programs: 2.00 times (TF32) and 0.50 times (bfloat16)", "1 of the 3 run at its speed within 1 %",
         "slowest of all has 0.50 times", "1.20 to 1.20 times on the GPU, 1.10 to 1.10 in wall time"],
    ),
    "drawn programs": (
        lambda tool: {tool.DRAWN: [row for ours in (6.0, 48.0) for row in by_dtype("compiled", *[(ours, 12.0)] * 2)]},
        ["0.71 and 0.71 on 4 drawn at random", "slowest of all has 0.25 times"],
    ),
    "fused layers": (
        lambda tool: {tool.EAGER: by_dtype("eager", (10.0, 20.0), (10.0, 15.0))},
        ["Fused layers, eager: 2.00 times (TF32) and 1.50 times (bfloat16)", "(2 calls), at least 1.50 times"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_those_of_the_results(tool, tree, name):
    files, expected = FIGURES[name]
    for file, rows in files(tool).items():
        (tree / tool.RESULTS / file).write_text(json.dumps({**RUN, "rows": rows}))
    text = " ".join(tool.figures(tool.read_results(tree / tool.RESULTS))["speed"].split())
    assert [words for words in expected if words not in text] == []
    others = {words for other, (_, found) in FIGURES.items() if other not in (name, "the least") for words in found[:1]}
    assert name in ("none is slower", "compiled programs") or not [words for words in others if words in text]


@pytest.mark.parametrize("name", ["CALLS", "ESTIMATE"])
def test_rows_of_kernels_that_do_not_exist_are_refused(tool, tree, name):
    path = tree / tool.RESULTS / getattr(tool, name)
    rows = [*CALLS, call(None, None, None, kernel=None), *[call(1.0, 2.0, kernel="no_such_kernel")] * 2]
    path.write_text(json.dumps({**RUN, "rows": rows}))
    with pytest.raises(SystemExit, match=rf"{path.name}: 2 of 6 rows \(no_such_kernel\)"):
        tool.main()
    assert (tree / "README.md").read_text() == README
    assert not any((tree / name).exists() for name in tool.CHARTS.values())


def test_without_results_no_figure_is_written(tool, tree, capsys):
    (tree / tool.RESULTS / tool.CALLS).unlink()
    tool.main()
    assert f"{tool.CALLS} or {tool.PROGRAMS} is missing" in capsys.readouterr().out
    assert not any((tree / name).exists() for name in tool.CHARTS.values())
    block = " ".join((tree / "README.md").read_text().partition("<!-- /figures -->")[0].split())
    assert f"`{tool.CALLS}`" in block
    assert tool.MEASURE in block
    assert "times as fast" not in block
    assert tool.CHARTS["light"] not in block


def test_results_of_an_interrupted_run_are_refused(tool, tree):
    path = tree / tool.RESULTS / tool.CALLS
    path.write_text(json.dumps({**RUN, "complete": False, "rows": CALLS}))
    with pytest.raises(SystemExit, match="interrupted run: measure it again"):
        tool.main()


@pytest.mark.parametrize("text", ["no block", README + README])
def test_every_block_is_there_once(tool, text):
    with pytest.raises(ValueError, match="expected one"):
        tool.rewrite(text, {"speed": "new"})


def test_the_chart_is_the_same_for_the_same_results(tool, tree):
    """With other settings of the user, too."""
    matplotlib = pytest.importorskip("matplotlib")
    chart = tree / tool.CHARTS["light"]
    tool.main()
    first, readme = chart.read_bytes(), (tree / "README.md").read_text()
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert readme.startswith("begins\n<!-- figures: speed -->\n<picture>")
    assert readme.endswith("<!-- /figures -->\nends\n")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "none"}):
        tool.main()
    assert chart.read_bytes() == first
    assert (tree / "README.md").read_text() == readme
    digest = tool.digest_in(first.decode())
    assert digest == tool.read_results(tree / tool.RESULTS).digest
    path = tree / tool.RESULTS / tool.PROGRAMS
    path.write_text(json.dumps({**RUN, "rows": PROGRAMS[:2]}))
    tool.main()
    assert tool.digest_in(chart.read_text()) == tool.read_results(tree / tool.RESULTS).digest != digest


def test_documents_and_charts_of_the_checkout(tool):
    """They are of the committed results: `make charts` writes them."""
    results, text = tool.read_results(CHECKOUT / tool.RESULTS), (CHECKOUT / "README.md").read_text()
    assert tool.rewrite(text, tool.figures(results)) == text
    assert tool.performance.text(CHECKOUT / tool.RESULTS) == (CHECKOUT / "docs/performance.md").read_text()
    for name in tool.CHARTS.values():
        assert results.digest is None or tool.digest_in((CHECKOUT / name).read_text()) == results.digest


def test_the_performance_page(tool, tree):
    text = tool.performance.text(tree / tool.RESULTS)
    assert "`h200_unseen_race.json`: NVIDIA H200, torch 2.11.0+cu130, cuDNN 9.19, 2026-01-02." in text
    assert "| all | 3 | 2 | 1.47 | 1.79 | 0.80 | 1 | 1 |" in text
    assert "Means: inference float32 4.00, inference bfloat16 0.50, training steps float32 1.20." in text
    assert "| Net | 40.0 → 10.0 (4.00) | 4.0 → 8.0 (0.50) |" in text
    assert "h100" not in text


def test_no_layer_and_no_program_is_left_out_of_the_chart(tool, tree):
    pytest.importorskip("matplotlib")
    rows = [call(1.0, 2.0, layer=name, precision="default", direction="fwd") for name in ("slow", "fast", "random 1")]
    rows.append(call(9.0, 1.0, layer="slow", precision="default", direction="fwd", layout="nhwc"))
    (tree / tool.RESULTS / tool.CALLS).write_text(json.dumps({**RUN, "rows": rows}))
    tool.main()
    for name in tool.CHARTS.values():
        chart = (tree / name).read_text()
        assert "slow" in chart
        assert "2.0 → 1.0   1.0 → 9.0" in chart  # unfavourable, and as it was measured
        assert "random 1" not in chart
        assert "40.0 → 10.0   4.0 → 8.0" in chart
