"""Changes the planner's conditions on purpose, one at a time, and runs the planner's tests: do they notice?

    python tools/mutate_planner.py                  all changes, of each the tests of its engine, then the others
    python tools/mutate_planner.py --only NAME ...  these changes
    python tools/mutate_planner.py --quick          the tests of its engine alone

Works on a copy of the sources, whose objects are kept in --out (build/mutants): a change compiles one file. Exits with
1 when a change survives that is not known to be harmless (planner_mutations.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from planner_mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("kernels", "tests", "convt_ext", "pyproject.toml")
# Tests of every engine, beside those of its own file; and those that compare with a binary, which has no change.
EVERYWHERE = ("test_plan_large.py", "test_plan_tensor_maps.py")
OF_BINARY = "not wheel"


@dataclass
class Outcome:
    mutation: Mutation
    killed_by: str  # a test, or "": survived


def copy_sources(to: Path) -> None:
    """The sources as they are, without what tools leave behind; objects in `to` stay."""
    for name in COPIED:
        source, target = ROOT / name, to / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
        else:
            shutil.copy(source, target)


def apply(mutation: Mutation, tree: Path) -> str:
    """Makes the change; returns the file's text before."""
    path = tree / "kernels" / mutation.file
    text = path.read_text()
    found = text.count(mutation.before)
    if found != 1:
        raise SystemExit(f"{mutation.name}: {mutation.file} has the text to change {found} times, expected once")
    path.write_text(text.replace(mutation.before, mutation.after))
    return text


def build_module(tree: Path) -> None:
    """Before the tests, which would fail with a change that does not compile as with one that they notice."""
    command = [sys.executable, "tests/plan/build.py", "--out", "build/plan", "--module", "_plan"]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if built.returncode:
        raise SystemExit(f"{built.stdout}{built.stderr}")


def run_tests(tree: Path, files: list[str]) -> str:
    """The first test that fails, or "" where none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", OF_BINARY]
    environment = {**os.environ, "CONVT_TEST_UNINSTALLED": "1", "PYTHONPATH": str(tree)}
    paths = [f"plan/{file}" for file in files]
    run = subprocess.run([*command, *paths], cwd=tree / "tests", env=environment, capture_output=True, text=True)
    if run.returncode == 0:
        return ""
    named = [line.split()[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not named:  # the process died, of arithmetic that has no meaning
        return f"exit status {run.returncode}"
    return named[0].removeprefix("plan/")


def tests_of(file: str) -> str:
    """The tests of a file's family, by its name.

    >>> tests_of("patch_sm90a/runs_plan.cpp"), tests_of("direct/plan.cpp")
    ('test_plan_patch_runs.py', 'test_plan_thin_direct.py')
    """
    path = Path(file)
    family = path.stem.removesuffix("plan").removesuffix("layout").strip("_")
    of_thin = "thin" if path.parent.name in ("depthwise", "direct", "streamed") else ""
    return f"test_plan_{'_'.join(filter(None, (of_thin, path.parent.name.removesuffix('_sm90a'), family)))}.py"


def try_mutation(mutation: Mutation, tree: Path, quick: bool) -> Outcome:
    """Of the mutation's own tests first, because they are few."""
    before = apply(mutation, tree)
    try:
        build_module(tree)
        own = mutation.tests or tests_of(mutation.file)
        everything = sorted(path.name for path in (tree / "tests/plan").glob("test_plan_*.py"))
        first = [file for file in (own, *EVERYWHERE) if file in everything]
        killed_by = run_tests(tree, first)  # seconds
        if not killed_by and not quick:
            killed_by = run_tests(tree, [file for file in everything if file not in first])
        return Outcome(mutation, killed_by)
    finally:
        (tree / "kernels" / mutation.file).write_text(before)


def main() -> int:
    parser = argparse.ArgumentParser(description="Change the planner's conditions, and see which tests notice.")
    parser.add_argument("--only", nargs="+", choices=[m.name for m in MUTATIONS], metavar="NAME", help="these changes")
    parser.add_argument("--quick", action="store_true", help="only the tests of the changed file's engine")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants", help="where the sources are copied to")
    arguments = parser.parse_args()
    tree = arguments.out.resolve()
    tree.mkdir(parents=True, exist_ok=True)
    copy_sources(tree)
    build_module(tree)
    survivors = []
    for mutation in MUTATIONS:
        if arguments.only and mutation.name not in arguments.only:
            continue
        outcome = try_mutation(mutation, tree, arguments.quick)
        note = f" ({mutation.harmless})" if mutation.harmless and not outcome.killed_by else ""
        print(
            f"{mutation.name:32} {'killed by ' + outcome.killed_by if outcome.killed_by else 'SURVIVED' + note}",
            flush=True,
        )
        if not outcome.killed_by and not mutation.harmless:
            survivors.append(mutation.name)
    if survivors:
        print(f"survivors that nobody has explained: {', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
