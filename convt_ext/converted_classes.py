"""Maps a module's class to a class of convt_ext, and back.

Called by convert.py, which changes only the class of a module. A subclass that does not change PyTorch's computation
becomes a class that is still its subclass.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from .modules import ConvTranspose1d, ConvTranspose2d, ConvTransposeMixin, LazyConvTranspose1d, LazyConvTranspose2d

# PyTorch's class -> class of convt_ext.
_BECOMES: dict[type, type] = {
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.LazyConvTranspose1d: LazyConvTranspose1d,
    nn.LazyConvTranspose2d: LazyConvTranspose2d,
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
    return nn.ConvTranspose2d if issubclass(cls, nn.ConvTranspose2d) else nn.ConvTranspose1d


def _empty(plain: type) -> Any:
    """Returns an object without state, for pickle and copy."""
    cls = _of_subclass(plain)
    return cls.__new__(cls)


def class_of_ours(module: nn.Module) -> Any:
    """Returns the convt_ext class for a module of PyTorch, or None if the module may compute something else."""
    return _replaced(type(module), _ours)


def class_before(module: nn.Module) -> Any:
    """Returns the original or the equivalent PyTorch class of a convt_ext module; None for other modules."""
    return _replaced(type(module), _theirs)


def _ours(cls: type) -> Any:
    if cls in _BECOMES:
        return _BECOMES[cls]
    if issubclass(cls, ConvTransposeMixin) or "cls_to_become" in dir(cls):
        return None
    base = _base_of(cls)
    between = cls.__mro__[: cls.__mro__.index(base)]
    changed = {name for one in between for name in vars(one) if hasattr(base, name)}
    return _of_subclass(cls) if changed <= _HARMLESS else None  # type: ignore[arg-type]


def _theirs(cls: Any) -> Any:
    return _WAS.get(cls) or (vars(cls).get("_plain") if issubclass(cls, ConvertedSubclass) else None)


def _replaced(cls: type, replace: Any) -> Any:
    if cls.__module__ != parametrize.__name__ or len(cls.__bases__) != 1:
        return replace(cls)
    # parametrize gives each module its own class with its properties, and a copy of the module shares that class.
    # So this derives an equal class from the new base; removing the parametrization restores that base.
    base = replace(cls.__bases__[0])
    if base is None:
        return None
    own = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
    return type(cls.__name__, (base,), own)
