"""Wheels that pip accepts, without a binary, for the packaging tests."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(path: Path, requires: str = "", module: str | None = None) -> Path:
    """Writes a wheel with the name of `path`, which needs `requires` and contains one module with that text."""
    name, version = path.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        if module is not None:
            archive.writestr(f"{name}.py", module)
        archive.writestr(f"{info}/METADATA", f"{metadata}Requires-Dist: {requires}\n" if requires else metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path
