"""Shared configuration of all tests: the installed package, the markers of GPU tests, and options of the GPU report.

Tests run against the wheel that users get. So this file refuses to run them against the package's folder
in the checkout. Without a GPU it skips GPU tests, or fails them with CONVT_REQUIRE_GPU=1.

    --gpu-report PATH   write a report: the binary must match these sources, outcomes go to PATH
    --shard I/N         run only the I-th of N shards of the GPU tests; its outcomes are added to those in PATH
    --time-limit S      with a report: after S seconds, fail and write a partial report

A test with the marker needs_two_gpus skips itself with one GPU; the report lists these skips separately. A test of
exact results passes their digests to the fixture record_result, which adds them to the report.

CONVT_TEST_UNINSTALLED=1, for development, runs tests against any convt_ext that Python finds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections import Counter
from pathlib import Path

import gpu_evidence
import pytest
import seeds
from gpu_facts import gpu_facts
from gpu_recorder import GpuRecorder
from plan import build

TESTS = Path(__file__).resolve().parent
CHECKOUT = TESTS.parent
REQUIRE_GPU = os.environ.get("CONVT_REQUIRE_GPU") == "1"
UNINSTALLED = os.environ.get("CONVT_TEST_UNINSTALLED") == "1"
RECORDER = "convt-gpu-recorder"  # the plugin that writes the report


def pytest_addoption(parser):
    group = parser.getgroup("convt_ext")
    group.addoption("--gpu-report", metavar="PATH", help="write the outcomes of the GPU tests to this file")
    group.addoption("--shard", metavar="I/N", help="run the I-th of N parts of the GPU tests")
    group.addoption("--time-limit", metavar="S", type=float, help="end a run with a report after so many seconds")


def pytest_configure(config):
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # xdist would begin with the files of most tests
    if config.getoption("shard"):
        # Shards run side by side, where torch's threads for all cores in each of them wait for one another.
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads it when it is imported
    if UNINSTALLED:
        return
    try:
        package = importlib.import_module("convt_ext")
    except Exception as error:
        raise pytest.UsageError(
            f"convt_ext cannot be imported ({error}): run `make install`, then pytest inside tests/ "
            "(for a quick look while writing code: CONVT_TEST_UNINSTALLED=1)"
        ) from None
    origin = package.__file__ and Path(package.__file__).resolve().parent
    if not origin or origin == CHECKOUT / "convt_ext":
        raise pytest.UsageError(
            "convt_ext comes from the checkout, but the tests judge the installed wheel: "
            "run `make test`, or after `make install` run pytest inside tests/ "
            "(for a quick look while writing code: CONVT_TEST_UNINSTALLED=1)"
        )
    if config.getoption("gpu_report"):
        config.pluginmanager.register(_recorder(config, package.build_info()), RECORDER)


def _recorder(config, build_info) -> GpuRecorder:
    """Returns the recorder of the GPU report, if the installed binary is of these sources and a GPU can run it."""
    digest = importlib.import_module("convt_ext._sources").sources_digest(CHECKOUT)
    if build_info["sources"] != digest:
        raise pytest.UsageError(
            f"the installed binary was built from sources {build_info['sources']}, but the tree is "
            f"{digest}: run `make build` and install that wheel"
        )
    if not build_info["optimized"]:
        raise pytest.UsageError("the installed binary was built with CONVT_EXT_FAST_COMPILE: build it without")
    reason = _missing_gpu()
    if reason:
        raise pytest.UsageError(f"a GPU report needs a GPU: {reason}")
    facts = {"sources": digest, "seed": seeds.SEED, **gpu_facts()}
    path, limit = Path(config.getoption("gpu_report")), config.getoption("time_limit")
    return GpuRecorder(path, facts, limit=limit)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Returns the number of workers of `-n auto` with a GPU. Each worker has a CUDA context and a cache of memory."""
    if _missing_gpu():
        return None  # xdist's default, one per core
    import torch

    return max(1, min(os.cpu_count() or 1, torch.cuda.mem_get_info()[1] // (8 << 30)))


@pytest.fixture
def record_result(request):
    """`record_result(name, hexdigest)`: adds the digest of an exact result to the GPU report, if there is one.

    tools/gpu_status.py --compare compares reports of two GPU models by these. A second digest for a name raises a
    ValueError.
    """
    recorder = request.config.pluginmanager.get_plugin(RECORDER)
    return recorder.record_result if recorder else lambda name, hexdigest: None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if TESTS / "gpu" in item.path.parents:
            item.add_marker(pytest.mark.gpu)
    # The longest files without a GPU run first, so that no worker begins one of them last.
    times = Counter()
    for item in items:
        if not item.get_closest_marker("gpu"):
            times[item.path] += _milliseconds(item)
    items.sort(key=lambda item: -times[item.path])
    text = config.getoption("shard")
    if text:
        try:
            index, count = gpu_evidence.parse_shard(text)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        gpu_items = [item for item in items if item.get_closest_marker("gpu")]
        dealt = gpu_evidence.deal([_milliseconds(item) for item in gpu_items], count)
        others = {item for item, shard in zip(gpu_items, dealt, strict=True) if shard != index - 1}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def _milliseconds(item) -> int:
    """Returns the approximate time of a test: the value of its mark `slow`, or the typical time."""
    slow = item.get_closest_marker("slow")
    return 1000 * slow.kwargs.get("seconds", 10) if slow else 300


def pytest_collection_finish(session):
    """Builds the C++ modules of the selected tests before any test's timer runs (minutes on a slow machine).

    Every worker of xdist runs this, and a lock lets the first one compile. After a failed build, the fixture reports
    the error.
    """
    if session.config.option.collectonly:
        return
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture, module in build.FIXTURES.items():
        if fixture in fixtures:
            with contextlib.suppress(RuntimeError, ImportError):
                build.load(module)


class ModuleWithoutGpu(pytest.Module):
    """A file of GPU tests without a GPU: one skip instead of thousands of collected tests."""

    def collect(self):
        pytest.skip(_missing_gpu(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    if TESTS / "gpu" not in module_path.parents or REQUIRE_GPU or parent.config.option.collectonly:
        return None
    return ModuleWithoutGpu.from_parent(parent, path=module_path) if _missing_gpu() else None


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and (reason := _missing_gpu()):
        pytest.fail(f"CONVT_REQUIRE_GPU=1, but {reason}", pytrace=False)
    if item.get_closest_marker("needs_two_gpus") and importlib.import_module("torch").cuda.device_count() < 2:
        pytest.skip(gpu_evidence.TWO_GPUS)


def pytest_report_header(config):
    if UNINSTALLED:
        return "convt_ext: not the installed wheel (CONVT_TEST_UNINSTALLED=1)"
    package = importlib.import_module("convt_ext")
    info = package.build_info()
    where = Path(package.__file__).parent
    gpu = _missing_gpu() or f"GPU: {gpu_facts()['gpu']}"
    seed = f"random problems on the GPU: CONVT_TEST_SEED={seeds.SEED}"
    return [f"convt_ext {info['version']}, sources {info['sources']}, in {where}", gpu, seed]


def pytest_terminal_summary(terminalreporter):
    """Prints the seeds of a run's random problems, which reproduce them."""
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for seed in (value for name, value in report.user_properties if name == "seed"):
            terminalreporter.write_line(f"{report.nodeid}: {seed}")


def _missing_gpu() -> str | None:
    """Returns why GPU tests cannot run here, or None if they can."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    if importlib.import_module("convt_ext").is_available():
        return None
    extension = importlib.import_module("convt_ext.environment._extension")
    return f"no GPU that the binary serves: {extension.unavailable_reason()}"
