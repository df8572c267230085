"""The names of all kernel instances, from the text of kernels/*/instances.h.

Called by raw_ops.py and by tools/charts.py, which needs neither torch nor a binary.
"""

from __future__ import annotations

import re
from pathlib import Path

_KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def kernel_instances(kind: str) -> list[str]:
    """The names of the kernels in the class "exact" or "tensor cores", as plans and result files have them."""
    kernels = []
    for path in sorted(_KERNELS.glob("*/instances.h")):
        room = path.parent.name
        if kind != ("tensor cores" if room.endswith("_sm90a") or room == "portable" else "exact"):
            continue
        text = path.read_text()
        kernels += re.findall(r'\{"(\w+)", DataType::', text)
        macros = _macros(text)
        for prefix in set(re.findall(r'\{"(\w+_)" #symbol', text)):  # of macro lists
            for name in dict.fromkeys(re.findall(r"(CONVT_\w+)\(CONVT_ROW\)", text)):
                kernels += [prefix + symbol for symbol in re.findall(r"ROW\((\w+)", _expand(f"{name}(ROW)", macros))]
    return kernels


def _macros(text: str) -> dict[str, tuple[list[str], str]]:
    """The parameters and the body of each macro of a list of kernels."""
    lines = re.findall(r"^#define (CONVT_\w+)\(([^)]*)\) (.*)$", text.replace("\\\n", " "), re.MULTILINE)
    return {name: (re.findall(r"\w+", parameters), body) for name, parameters, body in lines if name != "CONVT_ROW"}


def _expand(text: str, macros: dict[str, tuple[list[str], str]]) -> str:
    """What the preprocessor makes of it.

    >>> _expand("BOTH(ROW)", {"BOTH": (["X"], "X(a, 1) OF(X, b)"), "OF": (["X", "type"], "X(type##_c, 2)")})
    'ROW(a, 1) ROW(b_c, 2)'
    """
    call = re.compile(rf"\b({'|'.join(macros)})\(([^()]*)\)")
    while found := call.search(text):
        parameters, body = macros[found[1]]
        values = dict(zip(parameters, re.split(r",\s*", found[2]), strict=True))
        body = re.sub(r"\w+", lambda word, values=values: values.get(word[0], word[0]), body)
        text = text[: found.start()] + re.sub(r"\s*##\s*", "", body) + text[found.end() :]
    return text
