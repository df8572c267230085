"""Checks the text of workflows, locks and messages for unsafe installation and publishing.

Called by tools/lint_ci.py, which prints the faults. Requires:
- workflows: each installation uses a list in tools/locks/, with hashes; a job with write permissions or an identity
  token only publishes; no job has default permissions;
- tools/locks/: every package has one version and hashes, and each list contains all its requirements;
- everywhere: pip uses one index, because each of two indexes could provide names of the other;
- texts for users: no command installs this project by its bare name in a package index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import locks
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parent.parent

INSTALL = re.compile(r"(?:\bpip3?|\bpipx|\buv|\bconda|\bapt(?:-get)?|\bnpm) (?:install|add|pip install|ci)\b")
LOCKED = re.compile(r"python -m pip install --no-deps --only-binary :all: --require-hashes -r tools/locks/(\w+)\.txt")
# One command, without substitutions or further commands.
PUBLISHING = re.compile(
    rf"(?:gh release create|python -m twine upload|python -m pypi_attestations sign) [^;&|<>`(]*|{LOCKED.pattern}"
)
# Actions of a publishing job: they fetch files, set up Python, sign and upload. zizmor checks their commits.
PUBLISHING_ACTIONS = re.compile(
    r"actions/(?:checkout|setup-python|download-artifact|attest-build-provenance|deploy-pages)@.*"
)
# An install command, and in the same line the bare name of this project: not in a path, file or longer name.
TOLD_TO_INSTALL = re.compile(
    r"(?:\b(?:pip3?|pipx|conda) install|\buv (?:pip install|add))\b"
    r"[^\n`]*?(?<![\w./*\\-])convt[-_]ext\b(?![-\w]|\S*\.whl)"
)
# Anyone may own a name that is computed at run time, such as a module's. `package` of
# convt_ext/environment/_optional.py is allowed, because its values come from a list.
TOLD_A_VARIABLE = re.compile(r"\bpip3? install\b[^\n`]*?(?<!-r )\{(?!package\})")
SECOND_INDEX = re.compile(r"extra[-_]index[-_]url", re.IGNORECASE)


def jobs(workflow: str) -> dict[str, str]:
    """Returns the text of each job of a workflow.

    >>> list(jobs("on: push\\njobs:\\n  a:\\n    steps: []\\n  b-2:\\n    steps: []\\n"))
    ['a', 'b-2']
    """
    _, _, text = workflow.partition("\njobs:\n")
    parts = re.split(r"^  ([\w-]+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def steps(job: str, key: str) -> list[str]:
    """Returns the values of `run` or `uses` in the steps of a job; "|" for a block of lines.

    >>> steps('      - run: "make x"\\n      - id: a\\n        run: |\\n          make y\\n', "run")
    ['make x', '|']
    """
    found = re.findall(rf"^ +(?:- )?{key}: (.*)$", job, re.MULTILINE)
    return [re.sub(r" #.*", "", text).strip().strip("\"'") for text in found]


def workflow_faults(text: str) -> Iterator[str]:
    if not re.search(r"^permissions: \{\}$", text, re.MULTILINE):
        yield "needs the line `permissions: {}`, so that a job has only the permissions that it lists"
    for line in text.splitlines():
        if INSTALL.search(line) and not LOCKED.search(line):
            yield f"installs without hashes: {line.strip()}"
    for name in LOCKED.findall(text):
        if name not in locks.LOCKS:
            yield f"installs tools/locks/{name}.txt, which is none of {', '.join(locks.LOCKS)}"
    for name, job in jobs(text).items():
        if "    permissions:\n" not in job:
            yield f"job {name} lists no permissions"
        if not re.search(r"^ +[\w-]+: write\b", job, re.MULTILINE):
            continue
        for command in steps(job, "run"):
            if not PUBLISHING.fullmatch(command):
                yield f"job {name} may write or has an identity token, so it must not run: {command}"
        for action in steps(job, "uses"):
            if not PUBLISHING_ACTIONS.fullmatch(action):
                yield f"job {name} may write or has an identity token, so it must not use: {action}"


def lock_faults(text: str, inputs: str) -> Iterator[str]:
    """Yields the faults of a list in tools/locks, made from the requirements `inputs`."""
    pinned = {}
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        words = entry.split()
        if not words or words[0].startswith("#"):
            continue
        match = re.fullmatch(r"([\w.-]+)==([\w.+!]+)", words[0])
        if match is None or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in words[1:]):
            yield f"must have lines `name==version --hash=sha256:…`, got {entry.strip()[:80]}"
        elif len(words) == 1:
            yield f"has no hash of {words[0]}"
        else:
            pinned[canonicalize_name(match[1])] = match[2]
    for name, operator, version in re.findall(r"^([\w.-]+)(?:(==|>=)(\S+))?$", inputs, re.MULTILINE):
        found = pinned.get(canonicalize_name(name))
        if found is None or (operator == "==" and found != version):
            yield f"has {found or 'no version'} of {name}, expected {name}{operator}{version}: run `make locks`"


def second_index_faults(text: str) -> Iterator[str]:
    for match in SECOND_INDEX.finditer(text):
        yield f"names a second index ({match[0]}), which could provide any package: use one index per installation"


def message_faults(text: str) -> Iterator[str]:
    for match in TOLD_TO_INSTALL.finditer(text):
        yield f"tells users to install a name that this project does not own, expected a file: {match[0]}"
    for match in TOLD_A_VARIABLE.finditer(text):
        yield f"tells users to install a name that is computed at run time: {match[0]}…"


def read_by_users() -> list[Path]:
    """Returns the files that may contain messages for users: package, kernels, documents, examples, build and tools."""
    names = ("convt_ext", "kernels", "docs", "examples", "tools", "benchmarks")
    kinds = (".py", ".md", ".h", ".cpp", ".cuh", ".cu", ".sh", ".txt")
    found = [path for name in names for path in (CHECKOUT / name).rglob("*") if path.suffix in kinds]
    top = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("*.py"), CHECKOUT / "Makefile", CHECKOUT / "pyproject.toml"]
    own = Path(__file__).resolve()
    return sorted(path for path in (*found, *top) if path.is_file() and path.resolve() != own)


def faults() -> list[str]:
    """Returns a line for each fault, which starts with the file."""
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
