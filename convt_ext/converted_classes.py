"""Maps a module's class to a class of convt_ext, and back.

Called by convert.py, which changes only the class of a module. A subclass that does not change PyTorch's computation
becomes a class that is still its subclass.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from .modules import (
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    ConvTransposeMixin,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
)

# PyTorch's class -> class of convt_ext.
_BECOMES: dict[type, type] = {
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
    nn.LazyConvTranspose1d: LazyConvTranspose1d,
    nn.LazyConvTranspose2d: LazyConvTranspose2d,
    nn.LazyConvTranspose3d: LazyConvTranspose3d,
}
_WAS = {ours: theirs for theirs, ours in _BECOMES.items()}

# Attributes that a subclass may define without changing the computation.
_HARMLESS = frozenset({
    "__init__", "__module__", "__qualname__", "__doc__", "__annotations__", "__annotate_func__", "__annotate__",
    "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__parameters__", "__orig_bases__", "__dict__",
    "__weakref__", "extra_repr", "reset_parameters",
})  # fmt: skip


class ConvertedSubclass(nn.Module):
    """A converted module of a user's subclass; copies and pickles refer to that subclass."""

    _plain: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        return (_empty, (self._plain,), *reduced[2:])


@functools.cache
def _of_subclass(plain: Any) -> Any:
    ours = _BECOMES[_base_of(plain)]
    names = {"_plain": plain, "__module__": plain.__module__, "__qualname__": plain.__qualname__}
    return type(plain)(plain.__name__, (plain, ConvertedSubclass, ours), names)


def _base_of(cls: type) -> type:
    return next(one for one in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d) if issubclass(cls, one))


def _empty(plain: type) -> Any:
    """Returns an object without state, for pickle and copy."""
    cls = _of_subclass(plain)
    return cls.__new__(cls)


def class_of_ours(cls: type) -> Any:
    """Returns the convt_ext class for a class of PyTorch's modules; None if they may compute something else."""
    if _is_parametrized(cls):
        return _derived(cls, class_of_ours(cls.__bases__[0]))
    if cls in _BECOMES:
        return _BECOMES[cls]
    if issubclass(cls, ConvTransposeMixin) or "cls_to_become" in dir(cls):
        return None
    base = _base_of(cls)
    between = cls.__mro__[: cls.__mro__.index(base)]
    changed = {name for one in between for name in vars(one) if hasattr(base, name)}
    return _of_subclass(cls) if changed <= _HARMLESS else None  # type: ignore[arg-type]


def class_before(cls: Any) -> Any:
    """Returns the original or the equivalent PyTorch class of a convt_ext class; None for other classes."""
    if _is_parametrized(cls):
        return _derived(cls, class_before(cls.__bases__[0]))
    return _WAS.get(cls) or (vars(cls).get("_plain") if issubclass(cls, ConvertedSubclass) else None)


def _is_parametrized(cls: type) -> bool:
    return cls.__module__ == parametrize.__name__ and len(cls.__bases__) == 1


def _derived(cls: type, base: Any) -> Any:
    """Derives an equal class from the new base: parametrize gives each module its own class with its properties, and
    removing the parametrization restores the base."""
    own = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
    return None if base is None else type(cls.__name__, (base,), own)
