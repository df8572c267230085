"""The examples in the tools' own documentation, and where torch and what it needs come from."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
from cpu.fake_wheels import write_wheel

CHECKOUT = Path(__file__).resolve().parents[2]
WITH_EXAMPLES = (
    "architecture", "bench_results", "build_cost", "charts", "check_wheel", "compare_code", "family_worth",
    "gpu_shards", "install_torch", "nvcc", "release", "mutate_planner", "supply_chain",
)  # fmt: skip


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(tools, name):
    result = doctest.testmod(tools(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_known_changes_are_of_this_code(tools):
    """An entry of code that no longer exists is removed from known_mutations.txt."""
    tool = tools("mutate_planner")
    sources = [path for pattern in tool.FILES for path in (CHECKOUT / "kernels").glob(f"*/{pattern}")]
    of_planner = {change.words for path in sources for change in tool.changes_of(path.name, path.read_text())}
    of_python = {line.strip() for path in (CHECKOUT / "convt_ext").rglob("*.py") for line in path.open()}
    known = [line for line in tool.KNOWN.read_text().splitlines() if " -> " in line]
    assert [line for line in known if line not in of_planner and line.split(" -> ")[0] not in of_python] == []


def test_arguments_for_pip(tools, monkeypatch):
    words = tools("install_torch").pip_words
    monkeypatch.setenv("TORCH_CPU_INDEX", "file:///index")
    alone = ["torch", "--no-deps", "--index-url", "file:///index"]
    assert words("torch", "cpu") == words("torch", "any") == [alone, ["torch"]]
    assert words("torch", "cpu", needs_installed=True) == [alone, ["torch", "--no-index"]]
    assert words("torch", "cuda") == [["torch"]]
    monkeypatch.setenv("TORCH_CPU_INDEX", "")  # as an unset repository variable
    with pytest.raises(SystemExit, match="TORCH_CPU_INDEX is not set: set it to the address"):
        words("torch", "cpu")
    assert words("torch", "any") == [["torch"]]
    assert words("torch", "any", needs_installed=True) == [["torch", "--no-deps"], ["torch", "--no-index"]]


def make_wheel(index: Path, name: str, version: str, needs: str = "") -> None:
    """Writes a wheel of one module, which contains its version, and a page of an index (PEP 503)."""
    module = f"from types import SimpleNamespace as S\nversion = S(cuda=None, is_={version!r})\n"
    wheel = write_wheel(index / name / f"{name}-{version}-py3-none-any.whl", needs, module)
    address = wheel.name.replace("+", "%2B")
    (wheel.parent / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{address}">x</a></body></html>')


@pytest.fixture
def fresh_python(tmp_path, monkeypatch):
    """A virtual environment. Its pip has one index, in a folder, and no settings of this machine."""
    for name, value in {"CONFIG_FILE": "/dev/null", "FIND_LINKS": "", "EXTRA_INDEX_URL": "", "CONSTRAINT": ""}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "usual").as_uri())
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    return str(tmp_path / "venv/bin/python")


def test_torch_alone_comes_from_its_index(tools, tmp_path, monkeypatch, fresh_python):
    """Its index may have newer files of other packages, and the usual index a newer torch. pip ignores both."""
    install = tools("install_torch").install
    monkeypatch.setenv("TORCH_CPU_INDEX", (tmp_path / "torchs").as_uri())
    make_wheel(tmp_path / "torchs", "torch", "2.13.0+cpu", "needed")
    make_wheel(tmp_path / "torchs", "needed", "99")
    make_wheel(tmp_path / "usual", "torch", "2.13.1", "needed")
    make_wheel(tmp_path / "usual", "needed", "1")
    with pytest.raises(subprocess.CalledProcessError):
        install(fresh_python, "torch", "cpu", needs_installed=True)
    install(fresh_python, "torch", "cpu")
    program = "import torch, needed; print(torch.version.is_, needed.version.is_)"
    done = subprocess.run([fresh_python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.13.0+cpu", "1"]
