"""Tuning files: their content, the entries that apply here, and damage that is ignored."""

from __future__ import annotations

import json
import os

import pytest
import torch
from cpu_kernels import needs_binary
from served import switch

import convt_ext
from convt_ext.__main__ import main
from convt_ext.dispatch import planner, routing
from convt_ext.tuning import agree, benchmark, choices, files, load, replay, tune, unload
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT, Choice

HERE = files.Environment("NVIDIA H200", tuple(planner.H200), "digest", "13.0", "2.11.0", 91900, "580.95.05")


@pytest.fixture(autouse=True)
def no_file(monkeypatch):
    """Removes the user's and the package's files; the binary has the digest of `HERE`, and PyTorch its cuDNN."""
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setattr(files, "_chosen", None)
    monkeypatch.setattr(files, "_shipped", lambda: {})
    monkeypatch.setattr("convt_ext.environment._extension.build_info", lambda: {"sources": HERE.kernels})
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: HERE.cudnn)
    monkeypatch.setattr(files, "here", lambda device: HERE)
    choices.forget_measured()
    routing.forget()
    yield
    benchmark.force(None)
    choices.forget_measured()
    routing.forget()


def problem_of(layout="nchw", precision=3, dtype=torch.float32, x_stride=None):
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    x = torch.empty(2, 16, 12, 10, dtype=dtype).to(memory_format=memory_format)
    weight = torch.empty(16, 8, 4, 4, dtype=dtype).to(memory_format=memory_format)
    found = planner.Problem.of_call(
        x, weight, False, ((2, 2), (1, 1), (0, 0), 1, (1, 1), precision, layout == "nhwc"), tuple(planner.H200)
    )
    return found if x_stride is None else found._replace(input_stride=x_stride)


@pytest.fixture
def problem():
    return problem_of()


def candidates(problem, direction=FORWARD):
    return planner.plan(problem, direction)["candidates"]


def entry_of(problem, number, ours_us=10.0, torch_us=20.0, direction=FORWARD):
    plan = candidates(problem, direction)[number]
    knobs = {name: value for name, value in plan.items() if name not in planner.OF_EVERY_PLAN}
    return files.Entry(plan["kernel"], knobs, ours_us, torch_us)


def put(problem, entry, environment=HERE, direction=FORWARD):
    files.choose("a file", {environment: {files.key_of(problem, direction): entry}})


def test_a_call_has_one_name():
    assert files.key_of(problem_of(), FORWARD) == (
        "forward tf32 x=2x16x12x10:nchw w=16x8x4x4:nchw y=nchw stride=2x2 padding=1x1 output_padding=0x0 dilation=1x1 "
        "groups=1"
    )
    names = {
        files.key_of(problem_of(*arguments), direction)
        for arguments in (("nchw",), ("nhwc",), ("nchw", 0), ("nchw", 0, torch.float64))
        for direction in range(3)
    }
    assert len(names) == 12
    assert files.key_of(problem_of(x_stride=(4000, 200, 10, 1)), FORWARD) is None


@needs_binary
@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_plan_is_found_by_its_name(problem, number):
    put(problem, entry_of(problem, number))
    assert choices.find(problem, FORWARD) == Choice(False, number, 10.0, 20.0, "in a file:")
    assert choices.find(problem, GRAD_INPUT) is None
    assert choices.find(problem_of("nhwc"), FORWARD) is None


@needs_binary
def test_an_entry_without_knobs_matches_the_best_plan_of_its_kernel(problem):
    kernel = candidates(problem)[4]["kernel"]
    put(problem, entry_of(problem, 4)._replace(knobs={}))
    expected = next(number for number, plan in enumerate(candidates(problem)) if plan["kernel"] == kernel)
    assert choices.find(problem, FORWARD).candidate == expected


@needs_binary
def test_a_half_stands_for_the_other():
    bf16, f16 = (problem_of(precision=4, dtype=dtype) for dtype in (torch.bfloat16, torch.float16))
    put(bf16, entry_of(bf16, 3))
    assert choices.find(f16, FORWARD) == choices.find(bf16, FORWARD)


@needs_binary
@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True), ({"kernels": ""}, True), ({"kernels": "another"}, False), ({"gpu": "another name"}, True),
        ({"device": (90, 114, 232448, 233472, 1755, 1790)}, False), ({"driver": "590.1"}, True),
    ],
    ids=str,
)  # fmt: skip
def test_measurements_of_other_environments(problem, changed, counts):
    put(problem, entry_of(problem, 2), HERE._replace(**changed))
    assert (choices.find(problem, FORWARD) is not None) == counts


@needs_binary
@pytest.mark.parametrize(
    ("cudnn", "torch_us", "by_torch"),
    [(91900, 10.2, True), (91900, 10.5, False), (92400, 10.5, True), (92400, 11.4, True), (92400, 11.6, False)],
)
def test_pytorchs_time_counts_for_its_cudnn_and_with_a_margin_for_others(problem, cudnn, torch_us, by_torch):
    key, of_file = files.key_of(problem, FORWARD), HERE._replace(cudnn=cudnn)
    put(problem, entry_of(problem, 1, 10.0, torch_us), of_file)
    found = choices.find(problem, FORWARD)
    assert found.by_torch == by_torch
    assert found.candidate == 1  # the order of convt_ext's plans does not depend on cuDNN
    entries = {HERE: {key: entry_of(problem, 2)}, HERE._replace(cudnn=1): {key: entry_of(problem, 3)}}
    for order in (list(entries), list(entries)[::-1]):  # of several parts that of this cuDNN counts
        files.choose("a file", {one: entries[one] for one in order})
        assert choices.find(problem, FORWARD).candidate == 2


@needs_binary
def test_times_that_a_file_lacks_are_estimated(problem):
    best = planner.best_plan(problem, FORWARD)
    put(problem, files.Entry(None, {}, 0.0, 1.0))
    assert choices.find(problem, FORWARD) == Choice(True, 0, best.estimate_us, 1.0, "in a file:")
    put(problem, entry_of(problem, 1, 7.0, 0.0))
    assert choices.find(problem, FORWARD)[1:4] == (1, 7.0, best.torch_us)


@needs_binary
@pytest.mark.parametrize(
    "changes", [{"kernel": "no_such_kernel"}, {"knobs": {"threads": 7}}, {"knobs": {"no_such_knob": 1}}], ids=str
)
def test_a_plan_that_is_gone_is_a_miss(problem, changes):
    put(problem, entry_of(problem, 1)._replace(**changes))
    assert choices.find(problem, FORWARD) is None


@needs_binary
def test_no_file_decides_the_order_of_exact_sums():
    problem = problem_of(precision=0)
    plans = candidates(problem, GRAD_WEIGHT)
    put(problem, entry_of(problem, len(plans) - 1, direction=GRAD_WEIGHT), direction=GRAD_WEIGHT)
    assert choices.find(problem, GRAD_WEIGHT).candidate == 0


def test_a_file_comes_back_as_it_was_written(tmp_path):
    measured = {
        HERE: {"a": files.Entry("kernel", {"h": 8, "staged": True}, 1.5, 2.5), "b": files.Entry(None, {}, 0.0, 3.0)},
        HERE._replace(cudnn=None): {"a": files.Entry("kernel", {}, 1.0, 0.0)},
    }  # fmt: skip
    files.write(tmp_path / "tuning.json", measured)
    assert files.read(tmp_path / "tuning.json") == measured
    assert os.listdir(tmp_path) == ["tuning.json"]
    assert (tmp_path / "tuning.json").read_text().count("\n") == 9  # one line per call, for reviews


@pytest.mark.parametrize("function", ["replace", "chmod"])
@pytest.mark.parametrize("before", [True, False], ids=["a file", "no file"])
def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch, function, before):
    path = tmp_path / "tuning.json"
    if before:
        files.write(path, {})
    monkeypatch.setattr(os, function, lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        files.write(path, {HERE: {"a": files.Entry("kernel", {}, 1.0, 2.0)}})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["tuning.json"] if before else [])
    assert not before or files.read(path) == {}


def test_entries_that_cannot_be_read_are_left_out(tmp_path):
    path = tmp_path / "tuning.json"
    good = {"kernel": "k", "knobs": {}, "ours_us": 1.0, "torch_us": 2.0}
    bad = {"no_time": {**good, "ours_us": "soon"}, "negative": {**good, "torch_us": -1}, "empty": {}, "list": []}
    calls = {"good": good, **bad}
    part = {**HERE._asdict(), "calls": calls}
    path.write_text(json.dumps({"convt_ext_tuning": 1, "measured": [part, {"gpu": "half a part"}, 5]}))
    assert files.read(path) == {HERE: {"good": files.Entry("k", {}, 1.0, 2.0)}}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"convt_ext_tuning": 2}'])
def test_an_invalid_tuning_file_raises_in_load_and_warns_by_the_variable(tmp_path, monkeypatch, text):
    path = tmp_path / "tuning.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        load(path)
    monkeypatch.setenv(files.VARIABLE, str(path))
    with pytest.warns(RuntimeWarning, match=files.VARIABLE):
        assert choices.find(problem_of(), FORWARD) is None
    assert choices.find(problem_of(), FORWARD) is None  # without another warning


@needs_binary
def test_the_variable_names_a_file(problem, tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "not_yet.json"))
    assert choices.find(problem, FORWARD) is None
    path = tmp_path / "tuning.json"
    files.write(path, {HERE: {files.key_of(problem, FORWARD): entry_of(problem, 2)}})
    monkeypatch.setattr(files, "_chosen", None)
    monkeypatch.setenv(files.VARIABLE, str(path))
    assert choices.find(problem, FORWARD).candidate == 2
    unload()
    assert choices.find(problem, FORWARD) is None


@needs_binary
def test_a_users_file_counts_before_the_packages(problem, monkeypatch):
    shipped = {HERE: {files.key_of(problem, FORWARD): entry_of(problem, 1)}}
    monkeypatch.setattr(files, "_shipped", lambda: shipped)
    assert choices.find(problem, FORWARD).source == "in shipped.json:"
    put(problem, entry_of(problem, 2))
    assert choices.find(problem, FORWARD)[1] == 2


def test_merging_keeps_the_later_entry(tmp_path, capsys):
    for name, us in (("a", 1.0), ("b", 2.0)):
        files.write(tmp_path / name, {HERE: dict.fromkeys(("both", name), files.Entry("k", {}, us, 9.0))})
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    assert main(["tune", "merge", *paths[:2], "--out", paths[2]]) == 0
    merged = files.read(paths[2])[HERE]
    assert {key: entry.ours_us for key, entry in merged.items()} == {"both": 2.0, "a": 1.0, "b": 2.0}
    assert main(["tune", "show", paths[2]]) == 0
    assert "cuDNN 91900" in capsys.readouterr().out
    assert main(["tune", "show", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


def test_tune_measures_a_model_and_keeps_what_it_found(fake_benchmark, tmp_path):
    path = tmp_path / "tuning.json"
    model = torch.nn.Sequential(torch.nn.ConvTranspose2d(4, 6, 4, 2, 1), torch.nn.ConvTranspose2d(6, 8, 3))
    found = tune(model, torch.randn(2, 4, 5, 6), file=path)
    assert sorted(fake_benchmark) == [FORWARD, FORWARD, GRAD_INPUT, GRAD_WEIGHT, GRAD_WEIGHT]  # the input wants none
    assert files.read(path) == found
    assert [len(calls) for calls in found.values()] == [5]
    assert all(type(module).__module__ != "convt_ext.modules" for module in model.modules())
    # In this process it applies at once. Another `tune` measures it again.
    x = torch.randn(2, 4, 5, 6)
    converted = convt_ext.convert(model)
    fake_benchmark.clear()
    with switch(torch.backends.cudnn, "benchmark", True):
        converted(x).sum().backward()
    assert fake_benchmark == []
    tune(converted, x, file=path, backward=False)
    assert fake_benchmark == [FORWARD, FORWARD]
    assert [len(calls) for calls in files.read(path).values()] == [5]


def test_tune_measures_explicit_calls(fake_benchmark):
    x, weight = torch.randn(2, 4, 5, 6, requires_grad=True), torch.randn(4, 6, 3, 3)
    tune(lambda *tensors: convt_ext.conv_transpose2d(*tensors, stride=2), x, weight)
    assert fake_benchmark == [FORWARD, GRAD_INPUT]
    assert x.grad is None
    with pytest.raises(RuntimeError, match="measured nothing"):
        tune(torch.nn.functional.relu, x)


def test_replay_measures_nothing(fake_benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "_WORTH", 0)
    x, weight = torch.randn(2, 4, 5, 6), torch.randn(4, 6, 3, 3)
    with switch(torch.backends.cudnn, "benchmark", True):
        with replay():
            convt_ext.conv_transpose2d(x, weight)
        assert fake_benchmark == []
        convt_ext.conv_transpose2d(x, weight)
        assert fake_benchmark == [FORWARD]


def test_ranks_agree(fake_benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "_WORTH", 0)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x, weight = torch.randn(2, 4, 5, 6), torch.randn(4, 6, 3, 3)
        with switch(torch.backends.cudnn, "benchmark", True):
            convt_ext.conv_transpose2d(x, weight)
            agree()
            assert choices.measured() == []
            convt_ext.conv_transpose2d(x, weight)
            convt_ext.conv_transpose2d(x[:1], weight)
        assert fake_benchmark == [FORWARD]
        *_, directions = routing.route(x, weight, None, 1, 0, 0, 1, 1, None)
        assert directions.choice(FORWARD).source == "in rank 0:"
    finally:
        torch.distributed.destroy_process_group()
