"""`convert`: turns every `nn.ConvTranspose1d`, `2d` and `3d` of a model into convt_ext's, in place.

Changes only the class of each module object: its parameters, buffers, hooks, training flag and all references to it
(shared modules, optimizers, lists) stay the same objects, and a root that is itself such a module needs no special
case. A subclass that does not change PyTorch's computation becomes a class that is still its subclass. Must not change
unknown classes: a subclass would lose its own forward.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from torch import fx, nn
from torch.nn.utils import parametrize

from . import modules
from .dispatch.request import encode_request
from .epilogue import graph, sequential
from .modules import ConvTransposeMixin

_log = logging.getLogger("convt_ext")

_Model = TypeVar("_Model", bound=nn.Module)

_KEEP: Any = object()  # keep the module's precision or backend


def convert(
    model: _Model,
    precision: str | None = _KEEP,
    fuse: bool = False,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
    backend: str | None = _KEEP,
) -> _Model:
    """Makes every `torch.nn.ConvTranspose1d`, `2d` and `3d` in `model` compute with convt_ext, in place.

    Keeps Parameters, buffers, hooks, `torch.nn.utils.parametrize`, both kinds of weight_norm and spectral_norm, shared
    modules and the training flag; state_dict keys do not change. Lazy modules stay lazy. Modules of convt_ext stay,
    and adopt `precision` and `backend` if they are given. `revert` undoes the conversion.

    A subclass that overrides no part of the computation of PyTorch's class is converted to a subclass of
    both classes. Other subclasses, and modules with a `forward` that was replaced on the object, stay unchanged and
    are listed in one UserWarning. The logger "convt_ext" records at INFO every conversion and every fusion.
    Another UserWarning lists modules and operations that look fusible but were not fused, with the reason.

    Args:
        model: any module, also a single layer.
        precision: precision of the modules, or None to follow PyTorch's switches; if omitted, modules of convt_ext
            keep their precision.
        fuse: whether to fuse the modules that follow a convolution into its kernel; after one- and three-dimensional
            convolutions only a BatchNorm in eval mode is fused, and other modules stay separate. Applies to every
            `nn.Sequential` and to models traced by `torch.fx` before or after conversion. Fuses a BatchNorm in eval
            mode that directly follows (folded into weight and bias), activations, and Dropout in eval mode; in traced
            models also operations such as `relu(y)`, `y + residual` and `y * 0.5` if `y` has no other reader. Each call
            checks modules and operands again. Modules run unfused if no kernel supports them, if they have hooks, and
            if a BatchNorm or Dropout is in training mode or gradients are recorded through a BatchNorm. Calls under
            tracing, under a transform and under `torch.compile` are not fused. Modules stay in place, so parameters,
            optimizers and state_dicts do not change. Folding changes rounding (docs/numerics.md). Each call folds
            again, if the weight is not larger than the result. After `freeze`, the folded weight is kept until a write
            that PyTorch counts; `freeze` lists the uncounted writes, and writes to running statistics other than by
            training the module are uncounted too. A convolution that is called directly is not fused.

        filter_fn: is called with each transposed convolution and its name in the model ("" is the model itself);
            returns whether to convert it.
        backend: the implementation of the modules, as in `convt_ext.conv_transpose2d`, or None; if omitted, modules of
            convt_ext keep their own.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is not a `torch.nn.Module`.
        ValueError: an unknown precision or backend.

    Example:
        >>> import torch, convt_ext
        >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 2, stride=2), torch.nn.ReLU())
        >>> type(convt_ext.convert(model)[0]) is convt_ext.ConvTranspose2d
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert expects a torch.nn.Module, but got {type(model).__name__}")
    keywords = {name: value for name, value in (("precision", precision), ("backend", backend)) if value is not _KEEP}
    encode_request(keywords.get("precision"), keywords.get("backend"))  # raises an error for unknown ones
    left_alone = []
    for name, module in model.named_modules():
        label = name or "the model itself"
        is_candidate = isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d))
        if not is_candidate or (filter_fn is not None and not filter_fn(module, name)):
            continue
        if isinstance(module, ConvTransposeMixin):
            _set(module, keywords)
            continue
        target = _class_of_ours(type(module))
        if target is None:
            left_alone.append(f"{label} ({type(module).__module__}.{type(module).__qualname__})")
        elif "forward" in vars(module):
            left_alone.append(f"{label} (its forward was replaced on the object)")
        else:
            module.__class__ = target
            _set(module, keywords)
            _log.info("converted %s", label)
    if left_alone:
        warnings.warn(
            f"convt_ext.convert left {len(left_alone)} module(s) unchanged, because they may compute something "
            f"else: {', '.join(left_alone)}",
            UserWarning,
            stacklevel=2,
        )
    if fuse:
        _fuse(model)
    return model


def _fuse(model: nn.Module) -> None:
    done, left = [], []
    for name, module in list(model.named_modules()):
        of_module: tuple[list[str], list[str]] = [], []
        if isinstance(module, fx.GraphModule):
            of_module = graph.fuse(module, name)
        elif isinstance(module, nn.Sequential):
            of_module = sequential.fuse(module, name)
        done += of_module[0]
        left += of_module[1]
    for text in done:
        _log.info("fused %s", text)
    if left:
        text = f"left {len(left)} fusible candidate(s) unfused: {', '.join(left)}"
    elif not done:
        text = (
            "found nothing to fuse: it searches nn.Sequential and traced models; for a model with its own forward, "
            "call convert(torch.fx.symbolic_trace(model), fuse=True)"
        )
    else:
        return
    warnings.warn(f"convt_ext.convert(fuse=True) {text}", UserWarning, stacklevel=3)


def _set(module: nn.Module, keywords: dict[str, str | None]) -> None:
    """Sets those on the object that are not None, which is the class attribute."""
    for name, value in keywords.items():
        vars(module).pop(name, None)
        if value is not None:
            vars(module)[name] = value


def revert(model: _Model) -> _Model:
    """Turns every convt_ext module in `model` back into PyTorch's, in place: undoes `convert`.

    Drops precisions, backends, frozen weights and the fusion of every `nn.Sequential`. Modules that were constructed
    from convt_ext's classes become PyTorch's too.

    Args:
        model: any module.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is not a `torch.nn.Module`.
        ValueError: a traced graph was fused. The model is then unchanged.

    Example:
        >>> import torch, convt_ext
        >>> model = convt_ext.convert(torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 2, stride=2)))
        >>> type(convt_ext.revert(model)[0]) is torch.nn.ConvTranspose2d
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"revert expects a torch.nn.Module, but got {type(model).__name__}")
    for name, module in model.named_modules():
        label = name or "the model itself"
        if isinstance(module, fx.GraphModule) and graph.is_fused(module):
            raise ValueError(f"revert cannot undo the fusion of a traced graph, {label}: keep a copy of the original")
    for module in model.modules():
        if isinstance(module, sequential.FusedSequential):
            module.__class__ = module._plain or nn.Sequential
        before = _class_before(type(module))
        if before is not None:
            module.__class__ = before
            for name in ("precision", "backend", "_frozen", "_requested"):
                vars(module).pop(name, None)
    return model


# PyTorch's class -> class of convt_ext.
_BECOMES: dict[type, type] = {
    getattr(nn, name): getattr(modules, name)
    for name in (f"{kind}ConvTranspose{dims}d" for kind in ("", "Lazy") for dims in (1, 2, 3))
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


def _class_of_ours(cls: type) -> Any:
    """Returns the convt_ext class for a class of PyTorch's modules; None if they may compute something else."""
    if _is_parametrized(cls):
        return _derived(cls, _class_of_ours(cls.__bases__[0]))
    if cls in _BECOMES:
        return _BECOMES[cls]
    if issubclass(cls, ConvTransposeMixin) or "cls_to_become" in dir(cls):
        return None
    base = _base_of(cls)
    between = cls.__mro__[: cls.__mro__.index(base)]
    changed = {name for one in between for name in vars(one) if hasattr(base, name)}
    return _of_subclass(cls) if changed <= _HARMLESS else None  # type: ignore[arg-type]


def _class_before(cls: Any) -> Any:
    """Returns the original or the equivalent PyTorch class of a convt_ext class; None for other classes."""
    if _is_parametrized(cls):
        return _derived(cls, _class_before(cls.__bases__[0]))
    return _WAS.get(cls) or (vars(cls).get("_plain") if issubclass(cls, ConvertedSubclass) else None)


def _is_parametrized(cls: type) -> bool:
    return cls.__module__ == parametrize.__name__ and len(cls.__bases__) == 1


def _derived(cls: type, base: Any) -> Any:
    """Derives an equal class from the new base: parametrize gives each module its own class with its properties, and
    removing the parametrization restores the base."""
    own = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
    return None if base is None else type(cls.__name__, (base,), own)
