"""What a release installs and from where, who may publish, and what users are told to install: checked as text.

    python tools/supply_chain.py    print what is wrong, and fail where something is

Called by tools/lint_ci.py too. What it asks for:
- workflows: each installation is of a list in tools/locks/, with hashes; a job that may write or that holds an identity
  token does nothing but publish; no job has rights by default;
- tools/locks/: every package has one version and its hashes, and the lists have what they are made of;
- everywhere: no second index beside pip's, where either could serve a name that belongs to the other;
- what users read: the bare name of this project in a package index is never what they are told to install.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import locks

CHECKOUT = Path(__file__).resolve().parent.parent

INSTALL = re.compile(r"(?:\bpip3?|\bpipx|\buv|\bconda|\bapt(?:-get)?|\bnpm) (?:install|add|pip install|ci)\b")
LOCKED = re.compile(r"python -m pip install --no-deps --only-binary :all: --require-hashes -r tools/locks/(\w+)\.txt")
# One command, and none inside or behind it.
PUBLISHING = re.compile(
    rf"(?:gh release create|python -m twine upload|python -m pypi_attestations sign) [^;&|<>`(]*|{LOCKED.pattern}"
)
# Actions of a publishing job: they fetch files, set up Python, sign and upload. Which commit: zizmor looks at that.
PUBLISHING_ACTIONS = re.compile(
    r"actions/(?:checkout|setup-python|download-artifact|attest-build-provenance|deploy-pages)@.*"
)
# The command, then anything in one line up to the name alone: no path, no file, no other project's name.
TOLD_TO_INSTALL = re.compile(
    r"(?:\b(?:pip3?|pipx|conda) install|\buv (?:pip install|add))\b"
    r"[^\n`]*?(?<![\w./*\\-])convt[-_]ext\b(?![-\w]|\S*\.whl)"
)
# A name that a program makes up when it runs, such as that of a module, may be anybody's; convt_ext/_optional.py's
# `package` is one of a list.
TOLD_A_VARIABLE = re.compile(r"\bpip3? install\b[^\n`]*?(?<!-r )\{(?!package\})")
SECOND_INDEX = re.compile(r"extra[-_]index[-_]url", re.IGNORECASE)


def jobs(workflow: str) -> dict[str, str]:
    """The text of each job of a workflow.

    >>> list(jobs("on: push\\njobs:\\n  a:\\n    steps: []\\n  b-2:\\n    steps: []\\n"))
    ['a', 'b-2']
    """
    _, _, text = workflow.partition("\njobs:\n")
    parts = re.split(r"^  ([\w-]+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def steps(job: str, key: str) -> list[str]:
    """What the steps of a job have under `run` or `uses`; of a block of lines the "|".

    >>> steps('      - run: "make x"\\n      - id: a\\n        run: |\\n          make y\\n', "run")
    ['make x', '|']
    """
    found = re.findall(rf"^ +(?:- )?{key}: (.*)$", job, re.MULTILINE)
    return [re.sub(r" #.*", "", text).strip().strip("\"'") for text in found]


def workflow_faults(text: str) -> Iterator[str]:
    if not re.search(r"^permissions: \{\}$", text, re.MULTILINE):
        yield "needs the line `permissions: {}`, so that a job has the rights that it names and no others"
    for line in text.splitlines():
        if INSTALL.search(line) and not LOCKED.search(line):
            yield f"installs without hashes: {line.strip()}"
    for name in LOCKED.findall(text):
        if name not in locks.LOCKS:
            yield f"installs tools/locks/{name}.txt, which is none of {', '.join(locks.LOCKS)}"
    for name, job in jobs(text).items():
        if "    permissions:\n" not in job:
            yield f"job {name} does not say its permissions"
        if not re.search(r"^ +[\w-]+: write\b", job, re.MULTILINE):
            continue
        for command in steps(job, "run"):
            if not PUBLISHING.fullmatch(command):
                yield f"job {name} may write or has an identity token, and must not run: {command}"
        for action in steps(job, "uses"):
            if not PUBLISHING_ACTIONS.fullmatch(action):
                yield f"job {name} may write or has an identity token, and must not use: {action}"


def normal(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_faults(text: str, inputs: str) -> Iterator[str]:
    """Of a list of tools/locks, and of the requirements that it is made of."""
    pinned = {}
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        words = entry.split()
        if not words or words[0].startswith("#"):
            continue
        match = re.fullmatch(r"([\w.-]+)==([\w.+!]+)", words[0])
        if match is None or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in words[1:]):
            yield f"must have lines `name==version --hash=sha256:…` alone, got {entry.strip()[:80]}"
        elif len(words) == 1:
            yield f"has no hash of {words[0]}"
        else:
            pinned[normal(match[1])] = match[2]
    for name, operator, version in re.findall(r"^([\w.-]+)(?:(==|>=)(\S+))?$", inputs, re.MULTILINE):
        found = pinned.get(normal(name))
        if found is None or (operator == "==" and found != version):
            yield f"has {found or 'no version'} of {name}, and {name}{operator}{version} is asked for: run `make locks`"


def second_index_faults(text: str) -> Iterator[str]:
    for match in SECOND_INDEX.finditer(text):
        yield f"names a second index ({match[0]}), which could serve every name: one index for each installation"


def message_faults(text: str) -> Iterator[str]:
    for match in TOLD_TO_INSTALL.finditer(text):
        yield f"tells users to install a name that is not this project's, not a file: {match[0]}"
    for match in TOLD_A_VARIABLE.finditer(text):
        yield f"tells users to install a name that is not known when it is written: {match[0]}…"


def read_by_users() -> list[Path]:
    """The package, its errors in C++, documents, examples, what builds it, and the tools."""
    names = ("convt_ext", "kernels", "docs", "examples", "tools", "benchmarks")
    kinds = (".py", ".md", ".h", ".cpp", ".cuh", ".cu", ".sh", ".txt")
    found = [path for name in names for path in (CHECKOUT / name).rglob("*") if path.suffix in kinds]
    top = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("*.py"), CHECKOUT / "Makefile", CHECKOUT / "pyproject.toml"]
    own = Path(__file__).resolve()
    return sorted(path for path in (*found, *top) if path.is_file() and path.resolve() != own)


def faults() -> list[str]:
    """Everything that is wrong, a line each, with the file in front."""
    found: list[str] = []

    def look(path: Path, what: Iterator[str]) -> None:
        found.extend(f"{path.relative_to(CHECKOUT)}: {fault}" for fault in what)

    workflows = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
    for path in workflows:
        look(path, workflow_faults(path.read_text()))
    for path in (*workflows, *read_by_users(), CHECKOUT / ".ci/run"):
        if path.is_file():
            look(path, second_index_faults(path.read_text()))
            look(path, message_faults(path.read_text()))
    for name, lock in locks.LOCKS.items():
        path = locks.FOLDER / f"{name}.txt"
        look(path, lock_faults(path.read_text(), "".join(file.read_text() for file in lock.inputs())))
    return found


def main() -> None:
    found = faults()
    print("\n".join(found))
    if found:
        raise SystemExit("convt_ext: found fault with what is installed from where")


if __name__ == "__main__":
    main()
