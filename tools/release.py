"""What a release is made of, from a tag and the wheels that the runners built.

python tools/release.py check TAG             the tag is the version, and CHANGELOG.md has a dated entry for it
python tools/release.py notes                 print that entry, which the page of the release shows
python tools/release.py assemble FROM TO      sort the files of the folder FROM:
    TO/upload/                                the source distribution and the default wheels, for a package index
    TO/index/cu129/convt-ext/                 one index (PEP 503) per other CUDA version, with its wheels; pip
                                              gets it as --index-url
    TO/assets/                                all of them, for the page of the release
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

CHECKOUT = Path(__file__).resolve().parent.parent
PROJECT = "convt-ext"  # as PEP 503 spells it


def version() -> str:
    return runpy.run_path(str(CHECKOUT / "convt_ext/_version.py"))["__version__"]


def entry(changelog: str) -> tuple[str, str]:
    """What CHANGELOG.md says about this version: behind the version in its heading, and below it.

    Both are empty where it says nothing.
    """
    heading = rf"^## {re.escape(version())}(?![\w.])([^\n]*)\n"
    match = re.search(rf"{heading}(.*?)(?=^## |\Z)", f"{changelog}\n", re.MULTILINE | re.DOTALL)
    return (match[1], match[2].strip()) if match else ("", "")


def check(tag: str, changelog: str) -> None:
    """A tag that does not say the version, or a version without a dated entry, is no release."""
    if tag != f"v{version()}":
        raise SystemExit(f"convt_ext: the tag is {tag}, but the version is {version()}: tag v{version()}, or change it")
    if not re.search(r"\d{4}-\d\d-\d\d", entry(changelog)[0]):
        raise SystemExit(f'convt_ext: CHANGELOG.md needs a line "## {version()} (YYYY-MM-DD)" before a release')
    print(f"{tag} is the version, and CHANGELOG.md has it")


def notes(changelog: str) -> str:
    """The entry of this version, without its heading and its neighbours.

    Raises:
        SystemExit: there is none, or it is empty.
    """
    text = entry(changelog)[1]
    if not text:
        raise SystemExit(f'convt_ext: CHANGELOG.md says nothing below "## {version()}"')
    return text


def local_version(wheel: Path) -> str:
    return wheel.name.split("-")[1].partition("+")[2]


def index_page(title: str, links: list[str]) -> str:
    lines = "\n".join(f"    {link}<br>" for link in links)
    head = (
        f'<meta charset="utf-8">\n    <meta name="pypi:repository-version" content="1.0">\n    <title>{title}</title>'
    )
    return f"<!DOCTYPE html>\n<html>\n  <head>\n    {head}\n  </head>\n  <body>\n{lines}\n  </body>\n</html>\n"


def wheel_link(wheel: Path) -> str:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    address = html.escape(f"{quote(wheel.name)}#sha256={digest}")
    return f'<a href="{address}" data-requires-python="&gt;=3.10">{html.escape(wheel.name)}</a>'


def make_index(folder: Path, wheels: list[Path]) -> None:
    """An index of one project: its page, and the wheels beside it."""
    pages = folder / PROJECT
    pages.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, pages)
    (pages / "index.html").write_text(index_page(PROJECT, [wheel_link(wheel) for wheel in wheels]))
    (folder / "index.html").write_text(index_page(folder.name, [f'<a href="{PROJECT}/">{PROJECT}</a>']))


def assemble(source: Path, folder: Path) -> None:
    """Sorts the wheels by local version; the wheels of earlier versions stay in the indexes.

    Raises:
        SystemExit: a wheel of this version, or the source distribution, is missing, or one too many.
    """
    wheels = sorted(source.rglob("*.whl"))
    sdists = sorted(source.rglob(f"convt_ext-{version()}.tar.gz"))
    if len(sdists) != 1:
        raise SystemExit(f"convt_ext: a release has one source distribution of {version()}, {source} has {len(sdists)}")
    (folder / "upload").mkdir(parents=True)
    (folder / "assets").mkdir()
    assets = [*sdists]
    for target in targets.TARGETS:
        of_target = [wheel for wheel in wheels if local_version(wheel) == target.local_version]
        of_version = [wheel for wheel in of_target if wheel.name.split("-")[1].partition("+")[0] == version()]
        if len(of_version) != len(targets.RUNNERS):
            raise SystemExit(
                f"convt_ext: CUDA {target.cuda} has {len(of_version)} wheels, expected {len(targets.RUNNERS)}"
            )
        assets += of_version
        if target.is_default:
            for file in (*of_version, *sdists):
                shutil.copy(file, folder / "upload")
        else:
            make_index(folder / "index" / target.tag, of_target)
    for file in assets:
        shutil.copy(file, folder / "assets")
        print(file.name)


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
    if arguments.command == "check":
        check(arguments.tag, changelog)
    elif arguments.command == "notes":
        print(notes(changelog))
    else:
        assemble(arguments.source, arguments.folder)


if __name__ == "__main__":
    main()
