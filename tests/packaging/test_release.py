"""A release: the rules for its tag, and that pip finds each CUDA version's wheel where the release puts it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cpu.fake_wheels import write_wheel

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def release(tools):
    return tools("release")


@pytest.fixture
def built(release, tmp_path):
    """The artifacts of the runners: a folder for each target, and an earlier wheel."""
    version, folder = release.version(), tmp_path / "from"
    for name, of in (("wheel", version), ("wheel+cu129", f"{version}+cu129"), ("earlier", "0.0.9+cu129")):
        write_wheel(folder / name / f"convt_ext-{of}-py3-none-manylinux_2_28_x86_64.whl")
    (folder / f"convt_ext-{version}.tar.gz").write_bytes(b"sources")
    return folder


@pytest.fixture
def assemble(release, built):
    """Assembles a release of the runners' artifacts; by default it lists the earlier wheel unchanged."""

    def run(folder: Path, digests: dict[str, str] | None = None) -> None:
        known = {wheel.name: digest(wheel) for wheel in (built / "earlier").iterdir()}
        release.assemble(built, folder, known if digests is None else digests)

    return run


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_are_where_they_belong(release, assemble, tmp_path):
    assemble(tmp_path / "to")
    default, sdist = (
        f"convt_ext-{release.version()}{end}" for end in ("-py3-none-manylinux_2_28_x86_64.whl", ".tar.gz")
    )
    other = default.replace("-py3", "+cu129-py3")
    assert names(tmp_path / "to/upload") == {default, sdist}
    assert names(tmp_path / "to/assets") == {default, sdist, other, "SHA256SUMS"}
    sums = (tmp_path / "to/assets/SHA256SUMS").read_text()
    assert release.published(sums) == {name: digest(tmp_path / "to/assets" / name) for name in (default, sdist, other)}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "to/assets", check=True)
    assert names(tmp_path / "to/index") == {"cu129"}
    page = (tmp_path / "to/index/cu129/convt-ext/index.html").read_text()
    of_other = digest(tmp_path / "to/assets" / other)
    assert f'href="{other.replace("+", "%2B")}#sha256={of_other}"' in page


@pytest.mark.parametrize(("wanted", "got"), [("convt_ext", "{version}+cu129"), ("convt-ext==0.0.9", "0.0.9+cu129")])
def test_pip_finds_the_wheels_of_an_index(release, assemble, tmp_path, wanted, got):
    assemble(tmp_path / "to")
    index = (tmp_path / "to/index/cu129").as_uri()
    command = [sys.executable, "-m", "pip", "--isolated", "download", "--quiet", "--no-deps", "--index-url", index]
    command += ["--dest", str(tmp_path / "got"), "--disable-pip-version-check", wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = names(tmp_path / "got")
    assert wheel.startswith(f"convt_ext-{got.format(version=release.version())}-")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("wheel/*", "has 0 wheels, expected 1"),
        ("wheel+cu129/*", "has 0 wheels, expected 1"),
        ("*.tar.gz", "contains 0 source distributions"),
    ],
)
def test_a_missing_file_is_no_release(assemble, built, tmp_path, missing, words):
    next(built.glob(missing)).unlink()
    with pytest.raises(SystemExit, match=words):
        assemble(tmp_path / "to")


EARLIER = "convt_ext-0.0.9+cu129-py3-none-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("digests", "words"),
    [
        ({EARLIER: "0" * 64}, "was published as sha256 0{64} and is [0-9a-f]{64} now"),
        ({}, "is an earlier wheel, but published.sha256 has no digest of it"),
        ({"convt_ext-0.0.8+cu129-py3-none-x.whl": "0" * 64}, "convt_ext-0.0.8.* was published, but is not among"),
    ],
)
def test_an_earlier_wheel_is_as_it_was_published(assemble, built, tmp_path, digests, words):
    if not words.startswith(("was", "is")):
        digests = {**digests, EARLIER: digest(built / "earlier" / EARLIER)}
    with pytest.raises(SystemExit, match=words):
        assemble(tmp_path / "to", digests)
    assert not (tmp_path / "to").exists()


def test_default_wheels_and_sdists_of_earlier_releases_need_not_be_there(assemble, built, tmp_path):
    """They are written down, and no index has them."""
    known = {EARLIER: digest(built / "earlier" / EARLIER)}
    assemble(tmp_path / "to", {**known, EARLIER.replace("+cu129", ""): "0" * 64, "convt_ext-0.0.9.tar.gz": "0" * 64})


@pytest.mark.parametrize(
    "line", ["0f  convt_ext-0.0.9.tar.gz", "convt_ext-0.0.9.tar.gz", "\n".join([f"{'0' * 64}  a"] * 2)]
)
def test_a_record_of_digests_that_is_none(release, line):
    with pytest.raises(SystemExit, match="must have one line `DIGEST  FILE` for each file"):
        release.published(f"# files\n\n{line}\n")


def test_a_version_is_released_once(release):
    version = release.version()
    changelog = f"# Changelog\n\n## {version} (2026-01-31)\n"
    release.check(f"v{version}", changelog, {EARLIER: "0" * 64})
    for name in (f"convt_ext-{version}.tar.gz", EARLIER.replace("0.0.9", version)):
        with pytest.raises(SystemExit, match=r"was published already .* raise the version"):
            release.check(f"v{version}", changelog, {name: "0" * 64})


def test_the_tag_is_the_version(release):
    version = release.version()
    with pytest.raises(SystemExit, match=rf"the version is {version}"):
        release.check("v99.0", f"## {version} (2026-01-31)\n", {})
    for changelog in ("", f"## {version} (unreleased)\n", f"## {version}1 (2026-01-31)\n"):
        with pytest.raises(SystemExit, match=r"CHANGELOG\.md needs a line"):
            release.check(f"v{version}", changelog, {})


def test_the_notes_are_the_entry_of_the_version(release):
    version = release.version()
    below = "### Added\n\n- Everything.\n"
    for head, tail in (("", ""), ("# Changelog\n\n", "\n## 0.0.9 (2025-01-31)\n\n- Nothing.\n")):
        assert release.notes(f"{head}## {version} (2026-01-31)\n\n{below}{tail}") == below.strip()
    for changelog in ("", f"## {version}.1\n\n- Later.\n", f"## {version}\n\n## 0.0.9\n\n- Nothing.\n"):
        with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no text below"):
            release.notes(changelog)


def test_the_records_of_this_tree(release):
    release.published(release.PUBLISHED.read_text())
    text = release.notes((CHECKOUT / "CHANGELOG.md").read_text())
    assert "## " not in text.replace("### ", "")


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def programs_of(folder: Path) -> dict[str, str]:
    """An environment with the programs of the folder first."""
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


GH = """#!/bin/sh
echo "$@" >> "$0.log"
[ "$1 $2" = "$BROKEN" ] && exit 1
case "$1 $2 $3" in
  "release list "*) printf 'v1\\nv2\\n' ;;
  "release view v2") echo convt_ext-2+cu129-py3.whl ;;
  "release download v2") touch "$5/convt_ext-2+cu129-py3.whl" ;;
  "release download "*) exit 1 ;;
esac
exit 0
"""


@pytest.fixture
def earlier_wheels(tmp_path):
    """tools/earlier_wheels.sh with a stand-in for gh: of two releases the second has a wheel for an index."""
    write_program(tmp_path / "gh", GH)

    def fetch(broken: str = "") -> int:
        command = [CHECKOUT / "tools/earlier_wheels.sh", tmp_path / "to"]
        return subprocess.run(command, env={**programs_of(tmp_path), "BROKEN": broken}).returncode

    return fetch


def test_earlier_wheels_are_fetched(earlier_wheels, tmp_path):
    assert earlier_wheels() == 0
    assert names(tmp_path / "to") == {"convt_ext-2+cu129-py3.whl"}
    assert "download v1" not in (tmp_path / "gh.log").read_text()


@pytest.mark.parametrize("broken", ["release list", "release view", "release download"])
def test_an_error_is_no_release_without_wheels(earlier_wheels, broken):
    """An index without the earlier wheels must not be published after a failure of the network."""
    assert earlier_wheels(broken) != 0


IMAGE = "localhost:5000/manylinux_cuda/manylinux_2_28_{machine}_cuda{cuda}"


@pytest.mark.parametrize("end", [":2026.06.30-1", "@sha256:" + "0f" * 32])
def test_the_image_of_a_build(release, monkeypatch, end):
    monkeypatch.setenv("MANYLINUX_IMAGE", IMAGE + end)
    variables = release.targets.build_variables(release.targets.find_target("12.9"), "x86_64")
    assert variables == {
        "CIBW_MANYLINUX_X86_64_IMAGE": f"localhost:5000/manylinux_cuda/manylinux_2_28_x86_64_cuda12_9{end}",
        "CONVT_EXT_LOCAL_VERSION": "cu129",
        "CONVT_EXT_CUDA": "12.9",
    }


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (None, "MANYLINUX_IMAGE is not set"),
        ("", "MANYLINUX_IMAGE is not set"),
        ("manylinux_cuda/some:2026.06.30-1", "names no registry"),
        (IMAGE, "ends in no dated tag or digest"),
        (IMAGE + ":latest", "ends in no dated tag or digest"),
    ],
)
def test_an_image_without_a_name(release, monkeypatch, image, words):
    monkeypatch.delenv("MANYLINUX_IMAGE", raising=False)
    if image is not None:
        monkeypatch.setenv("MANYLINUX_IMAGE", image)
    monkeypatch.setattr(release.targets, "make_sdist", lambda: pytest.fail("the build must end before"))
    for target in release.targets.TARGETS:
        with pytest.raises(SystemExit, match=f"{words}: set it to the image's full name, REGISTRY/manylinux_cuda/"):
            release.targets.build(target, [])


@pytest.mark.parametrize(
    ("cuda", "name", "words"),
    [
        ("13.0", "0.1.0-py3-none-manylinux_2_28_x86_64", None),
        ("13.0", "0.1.0-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64", None),
        ("12.9", "0.1.0+cu129-py3-none-manylinux_2_28_aarch64", None),
        ("12.9", "0.1.0-py3-none-manylinux_2_28_x86_64", "must have the local version cu129"),
        ("13.0", "0.1.0+cu130-py3-none-manylinux_2_28_x86_64", r"local version \(none\)"),
        ("13.0", "0.1.0-py3-none-manylinux_2_34_x86_64", "newer Linux than manylinux_2_28"),
        ("13.0", "0.1.0-py3-none-linux_x86_64", "newer Linux than manylinux_2_28"),
        ("11.8", "0.1.0-py3-none-manylinux_2_28_x86_64", "choose one of 13.0, 12.9"),
    ],
)
def test_names_of_a_release(tools, cuda, name, words):
    refused = pytest.raises(SystemExit, match=words) if words else contextlib.nullcontext()
    with refused:
        tools("check_wheel").check_release(Path(f"convt_ext-{name}.whl"), cuda)


def test_the_gpu_job_fails_without_a_gpu(tmp_path):
    """Also where a driver's program is installed and finds nothing; it must stop before it installs anything."""
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\nexit 9\n")
    command = [CHECKOUT / "tools/gpu_job.sh", tmp_path / "some.whl", tmp_path / "report.json"]
    environment = {**programs_of(tmp_path), "PYTHON": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "this machine has no working NVIDIA GPU" in done.stderr
    assert not (tmp_path / "report.json").exists()
