"""The recorder of the GPU report on tests that need no GPU, and the GPU tests on a machine without one."""

from __future__ import annotations

import importlib
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gpu_evidence
import pytest
import torch
from gpu_recorder import GpuRecorder

TESTS = Path(__file__).resolve().parents[1]

CONFTEST = """
import runpy
from pathlib import Path

import pytest
import torch
from gpu_recorder import GpuRecorder

shared = runpy.run_path("TESTS/conftest.py")
record_result = shared["record_result"]
FACTS = {"sources": "0123", "gpu": "none", "gpus": 1, "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"}


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: as in the project")
    config.addinivalue_line("markers", "needs_two_gpus: as in the project")
    config.pluginmanager.register(GpuRecorder(Path("report.json"), FACTS), shared["RECORDER"])


def pytest_runtest_setup(item):
    shared["pytest_runtest_setup"].__globals__["_missing_gpu"] = lambda: None
    torch.cuda.device_count = lambda: 1
    shared["pytest_runtest_setup"](item)
"""

SUITE = """
import os
import pytest

pytestmark = pytest.mark.gpu


def test_passes(record_result):
    record_result("conv", "0123abcd")


def test_gives_another_result(record_result):
    record_result("conv", "4567abcd")


def test_fails():
    assert 1 == 2


def test_raises_twice():
    try:
        raise RuntimeError("the first")
    except RuntimeError:
        raise ValueError("the last")


def test_skips():
    pytest.skip("no reason at all")


@pytest.mark.needs_two_gpus
def test_of_two_gpus():
    raise AssertionError("must not run")


def test_dies():
    os._exit(3)
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("TESTS", str(TESTS)))
    (tmp_path / "test_suite.py").write_text(SUITE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(chosen: str) -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "test_suite.py"]
        return subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL).returncode

    return run, tmp_path / "report.json"


def test_outcomes_reasons_and_results(suite):
    run, path = suite
    assert run("not dies") == 1
    report = gpu_evidence.read(path)
    found = {name.split("::")[1]: (test["outcome"], test["reason"]) for name, test in report["tests"].items()}
    words = "ValueError: name: conv has the digest 0123abcd already, got 4567abcd: two results, one name"
    assert found == {
        "test_passes": ("passed", ""),
        "test_gives_another_result": ("failed", words),
        "test_fails": ("failed", "assert 1 == 2"),
        "test_raises_twice": ("failed", "ValueError: the last"),
        "test_skips": ("skipped", "no reason at all"),
        "test_of_two_gpus": ("skipped", gpu_evidence.TWO_GPUS),
    }
    assert report["results"] == {"conv": "0123abcd"}
    assert set(report) == set(gpu_evidence.KEYS) - {"conflicts", "others"}
    assert not gpu_evidence.unfinished(path).exists()


def test_a_process_that_dies_leaves_the_test_it_died_of(suite):
    run, path = suite
    assert run("passes or dies") == 3
    assert not path.exists()
    (died,) = gpu_evidence.read(gpu_evidence.unfinished(path))["tests"].items()
    assert died == (
        "test_suite.py::test_dies",
        {"outcome": "failed", "reason": "the process ended within this test"},
    )


@pytest.mark.parametrize(
    ("info", "words"),
    [({"sources": "another", "optimized": True}, "sources another"), ({"optimized": False}, "CONVT_EXT_FAST_COMPILE")],
    ids=["of other sources", "compiled fast"],
)
def test_no_report_of_such_a_binary(info, words):
    recorder = runpy.run_path(str(TESTS / "conftest.py"))["_recorder"]
    digest = importlib.import_module("convt_ext._sources").sources_digest(TESTS.parent)
    with pytest.raises(pytest.UsageError, match=words):
        recorder(None, {"sources": digest, **info})


@pytest.mark.parametrize(("limit", "ends"), [(None, False), (1000.0, False), (1.0, True)])
def test_a_run_with_a_limit_ends_there(limit, ends):
    recorder = GpuRecorder(Path("unused.json"), {}, limit=limit)
    recorder.start, recorder.tests = time.monotonic() - 100, {"one": {}}
    recorder.session = SimpleNamespace(testscollected=2, shouldfail=False)
    recorder.pytest_runtest_logfinish()
    assert bool(recorder.session.shouldfail) is ends
    if ends:
        assert "raise LIMIT" in recorder.session.shouldfail


# ---- without a GPU


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def run_gpu_tests(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "gpu/test_streams.py"]
    return subprocess.run(command, cwd=TESTS, env={**os.environ, **environment}, capture_output=True, text=True)


@without_gpu
def test_a_file_is_one_skip():
    done = run_gpu_tests(CONVT_REQUIRE_GPU="0")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no GPU: torch.cuda.is_available() is False" in done.stdout
    assert "1 skipped" in done.stdout


@without_gpu
def test_a_missing_gpu_can_be_a_failure():
    done = run_gpu_tests(CONVT_REQUIRE_GPU="1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "CONVT_REQUIRE_GPU=1, but no GPU" in done.stdout
    assert "passed" not in done.stdout
