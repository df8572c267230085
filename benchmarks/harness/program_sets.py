"""The programs that ``--programs`` measures in each mode, and the sets with separate figures.

Called by program_rows.py, program_report.py and command.py.
"""

from __future__ import annotations

from harness.drawn_programs import DRAWN
from harness.layer_programs import CHAINS, DECODER, LAYER_PROGRAMS, LEVEL2, LayerProgram
from harness.programs import COMPILED_STEPS, Program

AnyProgram = LayerProgram | Program

# The programs of each set, which are compiled for inference. Those of the first set also run eagerly.
LAYERS, OF_LEVEL2, OF_CHAINS, AT_RANDOM = "layers", "level 2", "chains", "drawn"
INFERENCE: dict[str, tuple[AnyProgram, ...]] = {
    LAYERS: LAYER_PROGRAMS, OF_LEVEL2: LEVEL2, OF_CHAINS: CHAINS, AT_RANDOM: DRAWN,
}  # fmt: skip

TRAINING: tuple[Program, ...] = (*COMPILED_STEPS, DECODER)

MODES: dict[str, tuple[AnyProgram, ...]] = {
    "eager": INFERENCE[LAYERS],
    "compiled": tuple(program for programs in INFERENCE.values() for program in programs),
    "train_compiled": TRAINING,
}

_SETS = INFERENCE | {"steps": TRAINING}  # the last set's networks are trained
_SET_OF = {program.name: name for name, programs in _SETS.items() for program in programs}


def set_of(program: str) -> str:
    """Returns the set of the program of that name.

    >>> set_of("decoder"), set_of("36: min, sum, GELU")
    ('steps', 'level 2')
    """
    return _SET_OF.get(program, "steps")


def names_of(word: str) -> list[str]:
    """Returns the names of a set's programs; the word itself if it is not the name of a set.

    >>> names_of("steps"), names_of("U-*")
    (['DCGAN generator', 'U-Net', 'decoder'], ['U-*'])
    """
    return [program.name for program in _SETS[word]] if word in _SETS else [word]
