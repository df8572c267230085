"""Changes one condition of the planner at a time, and prints the planner's test that detects the change.

    python tools/mutate_planner.py --number 40 --seed 1      make 40 random changes of all files
    python tools/mutate_planner.py nhwc_sm90a/plan.cpp       make every change of these files of kernels/

Run by hand. An operand of && becomes true, an operand of || false, and a comparison includes or excludes equality.
Works on a copy of the sources in build/mutants, which keeps the objects, so a change compiles one file. Runs
the tests in tests/plan, at most about 40 s of one core, and not those in tests/launch and tests/emulator.
known_mutations.txt lists harmless changes with reasons, which are not made. Exits with 1 if another change survives.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from required import require

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("kernels", "tests", "tools", "convt_ext", "pyproject.toml")
KNOWN = ROOT / "tools/known_mutations.txt"
FILES = ("*plan.cpp", "*layout.cpp")  # in the folder of each engine

# Tests that detect most changes run first. The last ones test the build or a binary, so they detect no change, or time.
FIRST = ("served", "large", "tensor_maps", "contract", "chosen")
LEFT_OUT = ("build", "offered")

# Without warnings, which are errors in this build: a change may leave a variable unused.
ENVIRONMENT = {**os.environ, "CONVT_TEST_UNINSTALLED": "1", "CXX": f"{os.environ.get('CXX', 'c++')} -w"}

_NEUTRAL = {"&&": "true", "||": "false"}
_EQUALITY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


class Change(NamedTuple):
    """A change of the characters from `start` to `end` of a file below kernels/."""

    file: str
    line: int
    start: int
    end: int
    after: str
    words: str  # "before -> after", as in known_mutations.txt


def changes_of(file: str, text: str) -> Iterator[Change]:
    """Yields every change of a file's text.

    >>> [one.words for one in changes_of("a", "return a < 2 && (b || f(c, d));  // e && g")]
    ['a < 2 -> true', '(b || f(c, d)) -> true', 'b -> false', 'f(c, d) -> false', 'a < 2 -> a <= 2']
    """
    code = _COMMENT_OR_TEXT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    operand_at = _Operands(code)

    def change(start: int, end: int, after: str, words: str) -> Change:
        return Change(file, text.count("\n", 0, start) + 1, start, end, after, re.sub(r"\s+", " ", words))

    for found in re.finditer(r"(?<=\s)(&&|\|\|)(?=\s)", code):
        operands = [(operand_at.begin(found.start()), found.start())]
        end = operand_at.end(found.end())
        if code[end : end + 2] not in _NEUTRAL:  # otherwise it is the left operand of the next operator
            operands.append((found.end(), end))
        for start, stop in operands:
            operand = text[start:stop]
            start += len(operand) - len(operand.lstrip())
            after = _NEUTRAL[found[1]]
            yield change(start, start + len(operand.strip()), after, f"{operand.strip()} -> {after}")
    for found in re.finditer(r"(?<= )(<=|>=|<|>)(?= )", code):
        start, end = operand_at.begin(found.start()), operand_at.end(found.end())
        if "for (" in code[code.rfind("\n", 0, found.start()) + 1 : found.start()]:
            continue  # an additional iteration reads outside of an array
        after = _EQUALITY[found[1]]
        comparison = f"{text[start : found.start()]}{after}{text[found.end() : end]}"
        yield change(found.start(), found.end(), after, f"{text[start:end].strip()} -> {comparison.strip()}")


class _Operands:
    """Finds the operands of a text without comments and strings."""

    _ENDS = re.compile(r"&&|\|\||[;,?{}]|(?<!:):(?!:)|(?<![=!<>])=(?!=)|\breturn\b")

    def __init__(self, code: str) -> None:
        self.code = code
        spans = [found.span() for found in self._ENDS.finditer(code)]
        self._begins, self._ends = {end for _, end in spans}, {begin for begin, _ in spans}

    def begin(self, at: int) -> int:
        """Returns where the operand begins that ends at `at`."""
        depth = 0
        while at > 0 and not (depth == 0 and (at in self._begins or self.code[at - 1] in "([")):
            depth += (self.code[at - 1] in ")]") - (self.code[at - 1] in "([")
            at -= 1
        return at

    def end(self, at: int) -> int:
        """Returns where the operand ends that begins at `at`."""
        depth = 0
        while at < len(self.code) and not (depth == 0 and (at in self._ends or self.code[at] in ")]")):
            depth += (self.code[at] in "([") - (self.code[at] in ")]")
            at += 1
        return at


def copy_sources(to: Path) -> None:
    """Copies the sources without generated files; objects in `to` are kept."""
    for name in COPIED:
        source, target = ROOT / name, to / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
        else:
            shutil.copy(source, target)


def builds(tree: Path) -> bool:
    """Builds the planner's module; returns whether it compiles. A compile error is not a detected change."""
    command = [sys.executable, "tests/plan/build.py", "--module", "_plan"]
    return subprocess.run(command, cwd=tree, env=ENVIRONMENT, capture_output=True).returncode == 0


def first_failure(tree: Path) -> str:
    """Returns the first test that fails, or "" if all pass."""
    others = {path.stem.removeprefix("test_plan_") for path in (tree / "tests/plan").glob("test_plan_*.py")}
    names = [*FIRST, *sorted(others - {*FIRST, *LEFT_OUT})]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-k", "not wheel", *(f"plan/test_plan_{name}.py" for name in names)]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tree)}
    run = subprocess.run(command, cwd=tree / "tests", env=environment, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return "" if run.returncode == 0 else failed[1] if failed else f"exit status {run.returncode}"


def outcome_of(change: Change, tree: Path) -> str:
    """Makes the change; returns the test that detects it, "does not compile", or "" if it survives."""
    path = tree / "kernels" / change.file
    before = path.read_text()
    path.write_text(before[: change.start] + change.after + before[change.end :])
    try:
        return first_failure(tree) if builds(tree) else "does not compile"
    finally:
        path.write_text(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="files below kernels/ (all plans and layouts)")
    parser.add_argument("--number", type=int, help="number of random changes (all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random changes")
    options = parser.parse_args()
    kernels = ROOT / "kernels"
    files = options.files or sorted(
        str(path.relative_to(kernels)) for pattern in FILES for path in kernels.glob(f"*/{pattern}")
    )
    changes = [one for file in files for one in changes_of(file, (kernels / file).read_text())]
    if options.number is not None:
        changes = random.Random(options.seed).sample(changes, min(options.number, len(changes)))
    tree, known, survived = ROOT / "build/mutants", KNOWN.read_text().splitlines(), 0
    tree.mkdir(parents=True, exist_ok=True)
    copy_sources(tree)
    require(builds(tree), "the planner's module does not compile: run tests/plan/build.py")
    failed = first_failure(tree)
    require(not failed, f"without a change, {failed} fails")
    for change in changes:
        outcome = "harmless" if change.words in known else outcome_of(change, tree) or "SURVIVED"
        survived += outcome == "SURVIVED"
        print(f"{change.file}:{change.line}: {change.words}  {outcome}", flush=True)
    require(not survived, f"{survived} undetected changes: add tests, or list them in known_mutations.txt")


if __name__ == "__main__":
    main()
