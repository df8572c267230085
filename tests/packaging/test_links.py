"""Links of the documents lead to files and headings of the checkout, and so do the places that messages name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

if not (CHECKOUT / "benchmarks").is_dir():
    pytest.skip("a source distribution lacks documents that others link to", allow_module_level=True)

FOLDERS = ("docs", "kernels", "benchmarks", "examples")
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(path for name in FOLDERS for path in (CHECKOUT / name).rglob("*.md"))])


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Returns the anchors of the headings, as on GitHub: lower case, no punctuation, a hyphen for each space."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code(path.read_text()), re.MULTILINE)
    found: set[str] = set()
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        number = 1
        while (name := anchor if number == 1 else f"{anchor}-{number - 1}") in found:
            number += 1
        found.add(name)
    return found


def test_anchors(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("# A `b`: c, d_e\n\n## [Same](x.md)\n## Same\n```\n# no heading\n```\n")
    assert anchors(path) == {"a-b-c-d_e", "same", "same-1"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_links_lead_somewhere(path):
    dead = []
    text = re.sub(r"`[^`]*`", "", without_code(path.read_text()))
    for link in re.findall(r"\]\(([^()\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and (target.suffix != ".md" or anchor not in anchors(target))):
            dead.append(link)
    assert not dead


def test_messages_name_headings_that_are_there():
    """Such as "(README.md, Build from source)"."""
    named = []
    for path in sorted((CHECKOUT / "convt_ext").rglob("*.py")):
        for document, heading in re.findall(r"\(([\w/]+\.md), ([\w ]+)\)", path.read_text()):
            named.append(heading)
            assert re.search(rf"^#+ {heading}$", (CHECKOUT / document).read_text(), re.MULTILINE), (path, heading)
    assert named
