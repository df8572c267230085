"""Consistency of the workflows with the tools that they call. `make lint-ci` checks their style."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
WORKFLOWS = CHECKOUT / ".github/workflows"

if not WORKFLOWS.is_dir():
    pytest.skip("a source distribution has no workflows", allow_module_level=True)

WHEELS = (WORKFLOWS / "wheels.yml").read_text()


@pytest.fixture
def jobs_of_a_release(tools) -> dict[str, str]:
    return tools("supply_chain").jobs((WORKFLOWS / "release.yml").read_text())


def test_permissions_of_a_release(jobs_of_a_release):
    """The permissions of each job besides reading the sources, with reasons. All other workflows have none."""
    write = re.compile(r"^      ([\w-]+): write\b", re.MULTILINE)
    assert {name: set(write.findall(job)) for name, job in jobs_of_a_release.items()} == {
        "check": set(),
        "wheels": set(),  # wheels.yml: all that builds and tests
        "assemble": set(),
        "attest": {"id-token", "attestations"},
        "page": {"contents"},
        "index": {"id-token", "pages"},
        "upload": {"id-token"},
    }
    assert not write.search(WHEELS)
    assert not write.search((WORKFLOWS / "ci.yml").read_text())


def test_published_files_are_the_attested_ones(jobs_of_a_release):
    """Files go from the job that sorts them to those that sign and publish them; nothing is published unsigned."""
    jobs = jobs_of_a_release
    before = {name: re.findall(r"^    needs: (.*)$", job, re.MULTILINE) for name, job in jobs.items()}
    assert before == {
        "check": [], "wheels": ["check"], "assemble": ["wheels"], "attest": ["assemble"], "page": ["attest"],
        "index": ["page"], "upload": ["page"],
    }  # fmt: skip
    made = set(re.findall(r"^          name: (.*)$", jobs["assemble"], re.MULTILINE))
    for name in ("attest", "page", "upload"):
        fetched = set(re.findall(r"^          name: (.*)$", jobs[name], re.MULTILINE))
        assert fetched
        assert fetched <= made
    assert "subject-path: assets/*" in jobs["attest"]
    assert "twine upload --non-interactive --attestations " in jobs["upload"]


def test_the_image_installs_with_hashes_before_torch():
    """torch is added to what is there, so nothing but torch itself comes without a hash into what builds a wheel."""
    (block,) = re.findall(r"^before-build = \[\n(.*?)^\]$", (CHECKOUT / "pyproject.toml").read_text(), re.M | re.S)
    lock, torch = re.findall(r'"(.*)"', block)
    assert re.search(r"--require-hashes -r \{project\}/tools/locks/wheel\.txt$", lock)
    assert re.search(r"install_torch\.py torch==[\d.]+ --build cpu --needs-installed$", torch)
