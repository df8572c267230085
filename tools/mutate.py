"""Changes one operator, number or condition of a module at a time, and prints the changes that no test detects.

    python tools/mutate.py MODULE ...       such as: precision arguments

Called by `make mutate MODULES="..."`, not by CI, because all modules need hours. cosmic-ray makes each change in a copy
of the checkout and runs the module's tests (`TESTS`). A surviving change is harmless, or a test is missing.
known_mutations.txt lists harmless changes with reasons. Exits with 1 if another change survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from required import require

CHECKOUT = Path(__file__).resolve().parent.parent

# The test files of each module. They run without a GPU.
TESTS = {
    "dispatch/arguments": ["test_arguments", "test_routing"],
    "dispatch/autocast": ["test_routing", "test_functional"],
    "dispatch/autograd": ["test_autograd"],
    "compile/inductor": ["test_inductor"],
    "compile/traced_ops": ["test_autograd", "test_compile_edges", "test_compile"],
    "compile/tracing": ["test_compile_edges", "test_compile"],
    "dispatch/directions": ["test_autograd", "test_errors", "test_routing", "test_explain"],
    "dispatch/frozen": ["test_frozen"],
    "dispatch/geometry": ["test_geometry", "test_ops", "test_routing"],
    "dispatch/precision": ["test_precision", "test_routing", "test_functional"],
    "dispatch/routing": ["test_routing", "test_functional", "test_explain"],
}

# This test can fail on a busy machine, which would count as a detected change.
TIMED = "test_a_decision_costs_microseconds"

# Excludes `|` of types and redundant replacements of arithmetic operators.
OPERATORS = (
    "ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)|AddNot"
    "|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    "|ReplaceUnaryOperator_Delete_Not|NumberReplacer|ReplaceBreakWithContinue"
    "|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Mod_FloorDiv)"
)
SECONDS_PER_RUN = 240.0

CONFIG = """[cosmic-ray]
module-path = {module!r}
timeout = {timeout}
test-command = {command!r}
[cosmic-ray.distributor]
name = "local"
[cosmic-ray.filters.operators-filter]
exclude-operators = ['(?!core/({operators})$)']
"""


def copy_checkout(folder: Path) -> Path:
    """Copies the files that the tests need, tracked or untracked, including the compiled binary."""
    copy = folder / "checkout"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
    shutil.copytree(CHECKOUT, copy, ignore=ignored, symlinks=True)
    return copy


def run(module: str, checkout: Path) -> tuple[int, list[str]]:
    """Returns the number of changes of a module, and the surviving ones as "path:line: before -> after"."""
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome

    files = [f"tests/cpu/{name}.py" for name in TESTS[module]]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", f"not {TIMED}"]
    tests = shlex.join([sys.executable, "-m", "pytest", *options, *files])
    name = module.replace("/", "-")
    config, session = checkout.parent / f"{name}.toml", checkout.parent / f"{name}.sqlite"
    path = f"convt_ext/{module}.py"
    config.write_text(CONFIG.format(module=path, timeout=SECONDS_PER_RUN, command=tests, operators=OPERATORS))
    environment = {**os.environ, "CONVT_TEST_UNINSTALLED": "1", "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    scripts = Path(sysconfig.get_path("scripts"))
    for program, *words in (
        ("cosmic-ray", "baseline", config),  # checks that the tests pass without a change
        ("cosmic-ray", "init", config, session),
        ("cr-filter-operators", session, config),
        ("cosmic-ray", "exec", config, session),
    ):
        subprocess.run([scripts / program, *words], cwd=checkout, env=environment, check=True)
    total, survived = 0, []
    with use_db(session) as database:
        for item, result in database.completed_work_items:
            total += result.worker_outcome is not WorkerOutcome.SKIPPED
            if result.test_outcome is TestOutcome.SURVIVED:
                before, after = (_line(result.diff, sign) for sign in "-+")
                survived.append(f"{path}:{item.mutations[0].start_pos[0]}: {before} -> {after}")
    return total, sorted(set(survived))


def _line(diff: str, sign: str) -> str:
    """Returns the changed line of a diff without its indentation."""
    found = re.search(rf"^{re.escape(sign)}(?!{re.escape(sign)}{{2}})(.*)$", diff, re.MULTILINE)
    return found[1].strip() if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", choices=sorted(TESTS), metavar="MODULE")
    options = parser.parse_args()
    known, new = (CHECKOUT / "tools/known_mutations.txt").read_text(), 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = copy_checkout(Path(folder))
        for module in options.modules:
            total, survived = run(module, checkout)
            unknown = [change for change in survived if change.split(": ", 1)[1] not in known]
            new += len(unknown)
            print(f"{module}: {total} changes, {len(survived)} survived, {len(unknown)} of these are new", flush=True)
            print(*unknown, sep="\n", flush=True)
    require(not new, f"{new} undetected changes: add tests, or list them in known_mutations.txt")


if __name__ == "__main__":
    main()
