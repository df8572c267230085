"""Checks the tag of a release, prints its notes, and sorts its files.

    python tools/release.py check TAG         check that the tag is the version, that CHANGELOG.md has a dated entry
                                              for it, and that no file of it was published before
    python tools/release.py notes             print that entry for the release page
    python tools/release.py assemble FROM TO  sort the files of the folder FROM:
        TO/upload/                            the source distribution and the default wheels, for a package index
        TO/index/cu129/convt-ext/             an index (PEP 503) for each other CUDA version; use it with pip's
                                              --index-url and --no-deps, because it does not contain torch
        TO/assets/                            the files of this release and SHA256SUMS, for the release page

Called by release.yml. tools/published.sha256 contains the lines of SHA256SUMS of all earlier releases. An index gets an
earlier wheel only if its digest matches. A version is released only once.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import re
import runpy
import shutil
from pathlib import Path
from urllib.parse import quote

import targets
from required import require

CHECKOUT = Path(__file__).resolve().parent.parent
PROJECT = "convt-ext"  # normalized as in PEP 503
PUBLISHED = CHECKOUT / "tools/published.sha256"


def version() -> str:
    return runpy.run_path(str(CHECKOUT / "convt_ext/_version.py"))["__version__"]


def entry(changelog: str) -> tuple[str, str]:
    """Returns this version's entry in CHANGELOG.md: the heading's text after the version, and the text below it.

    Both are empty if there is no entry.
    """
    heading = rf"^## {re.escape(version())}(?![\w.])([^\n]*)\n"
    match = re.search(rf"{heading}(.*?)(?=^## |\Z)", f"{changelog}\n", re.MULTILINE | re.DOTALL)
    return (match[1], match[2].strip()) if match else ("", "")


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def published(record: str) -> dict[str, str]:
    """Maps the names of published files to their digests, from lines in sha256sum's format.

    >>> published(f"# files\\n{'0' * 64}  convt_ext-0.0.9.tar.gz\\n")["convt_ext-0.0.9.tar.gz"] == "0" * 64
    True

    Raises:
        SystemExit: a line does not have sha256sum's format, or repeats a file.
    """
    digests: dict[str, str] = {}
    for line in record.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line)
        if match and match[2] not in digests:
            digests[match[2]] = match[1]
        else:
            is_other = not line.strip() or line.startswith("#")
            require(is_other, f"{PUBLISHED.name} must have one line `DIGEST  FILE` for each file, got {line!r}")
    return digests


def version_of(name: str) -> str:
    """Returns the version in a release file's name, without its local part.

    >>> version_of("convt_ext-0.1.0+cu129-py3-none-manylinux_2_28_x86_64.whl"), version_of("convt_ext-0.1.0.tar.gz")
    ('0.1.0', '0.1.0')
    """
    return name.removesuffix(".tar.gz").split("-")[1].partition("+")[0]


def check(tag: str, changelog: str, digests: dict[str, str]) -> None:
    """Exits unless the tag is the version, CHANGELOG.md has a dated entry for it, and it was not published before."""
    remedy = f"use the tag v{version()}, or change convt_ext/_version.py"
    require(tag == f"v{version()}", f"the tag is {tag}, but the version is {version()}: {remedy}")
    is_dated = re.search(r"\d{4}-\d\d-\d\d", entry(changelog)[0])
    require(is_dated, f'CHANGELOG.md needs a line "## {version()} (YYYY-MM-DD)" before a release')
    again = ", ".join(name for name in digests if version_of(name) == version())
    remedy = "a version is released only once: raise the version"
    require(not again, f"{again} was published already ({PUBLISHED.name}), and {remedy}")
    print(f"{tag} matches the version, and CHANGELOG.md has an entry for it")


def notes(changelog: str) -> str:
    """Returns the entry of this version without its heading.

    Raises:
        SystemExit: there is no entry, or it is empty.
    """
    text = entry(changelog)[1]
    require(text, f'CHANGELOG.md has no text below "## {version()}"')
    return text


def local_version(wheel: Path) -> str:
    return wheel.name.split("-")[1].partition("+")[2]


def index_page(title: str, links: list[str]) -> str:
    lines = "\n".join(f"    {link}<br>" for link in links)
    meta = '<meta charset="utf-8">\n    <meta name="pypi:repository-version" content="1.0">'
    head = f"{meta}\n    <title>{title}</title>"
    return f"<!DOCTYPE html>\n<html>\n  <head>\n    {head}\n  </head>\n  <body>\n{lines}\n  </body>\n</html>\n"


def wheel_link(wheel: Path) -> str:
    address = html.escape(f"{quote(wheel.name)}#sha256={digest_of(wheel)}")
    return f'<a href="{address}" data-requires-python="&gt;=3.10">{html.escape(wheel.name)}</a>'


def make_index(folder: Path, wheels: list[Path]) -> None:
    """Writes an index of one project: its pages and its wheels."""
    pages = folder / PROJECT
    pages.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, pages)
    (pages / "index.html").write_text(index_page(PROJECT, [wheel_link(wheel) for wheel in wheels]))
    (folder / "index.html").write_text(index_page(folder.name, [f'<a href="{PROJECT}/">{PROJECT}</a>']))


def check_earlier(wheels: list[Path], digests: dict[str, str]) -> None:
    """Checks that the wheels of earlier versions are complete and equal to the published files.

    Raises:
        SystemExit: a wheel is missing, differs from the published file, or has no digest in published.sha256.
    """
    wanted = {name for name in digests if local_version(Path(name)) and version_of(name) != version()}
    for wheel in wheels:
        remedy = "add the lines of its release's SHA256SUMS, after `gh attestation verify`"
        words = f"{wheel.name} is an earlier wheel, but {PUBLISHED.name} has no digest of it"
        require(wheel.name in digests, f"{words}: {remedy}")
        words = f"{wheel.name} was published as sha256 {digests[wheel.name]} and is {digest_of(wheel)} now"
        require(digest_of(wheel) == digests[wheel.name], f"{words}: the file on its release page was replaced")
    missing = ", ".join(sorted(wanted - {wheel.name for wheel in wheels}))
    require(not missing, f"{missing} was published, but is not among the earlier wheels")


def assemble(source: Path, folder: Path, digests: dict[str, str]) -> None:
    """Sorts the wheels by local version; the indexes keep the wheels of earlier versions.

    Raises:
        SystemExit: the number of wheels of this version or of source distributions is wrong, or an earlier wheel
            differs from the published file.
    """
    wheels = sorted(source.rglob("*.whl"))
    check_earlier([wheel for wheel in wheels if version_of(wheel.name) != version()], digests)
    sdists = sorted(source.rglob(f"convt_ext-{version()}.tar.gz"))
    words = f"{source} contains {len(sdists)} source distributions of {version()}, expected one"
    require(len(sdists) == 1, words)
    (folder / "upload").mkdir(parents=True)
    (folder / "assets").mkdir()
    assets = [*sdists]
    for target in targets.TARGETS:
        of_target = [wheel for wheel in wheels if local_version(wheel) == target.local_version]
        of_version = [wheel for wheel in of_target if version_of(wheel.name) == version()]
        words = f"CUDA {target.cuda} has {len(of_version)} wheels, expected {len(targets.RUNNERS)}"
        require(len(of_version) == len(targets.RUNNERS), words)
        assets += of_version
        if target.is_default:
            for file in (*of_version, *sdists):
                shutil.copy(file, folder / "upload")
        else:
            make_index(folder / "index" / target.tag, of_target)
    lines = [f"{digest_of(file)}  {file.name}\n" for file in assets]
    (folder / "assets/SHA256SUMS").write_text("".join(lines))
    for file in assets:
        shutil.copy(file, folder / "assets")
    print("".join(lines), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("tag")
    commands.add_parser("notes")
    words = commands.add_parser("assemble")
    words.add_argument("source", type=Path)
    words.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    changelog = (CHECKOUT / "CHANGELOG.md").read_text()
    digests = published(PUBLISHED.read_text())
    if arguments.command == "check":
        check(arguments.tag, changelog, digests)
    elif arguments.command == "notes":
        print(notes(changelog))
    else:
        assemble(arguments.source, arguments.folder, digests)


if __name__ == "__main__":
    main()
