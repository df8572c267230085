"""`convert`: turns every `nn.ConvTranspose1d`, `2d` and `3d` of a model into convt_ext's, in place.

Changes only the class of each module object: its parameters, buffers, hooks, training flag and all references to it
(shared modules, optimizers, lists) stay the same objects, and a root that is itself such a module needs no special
case. Must not change unknown classes: a subclass would lose its own forward.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from torch import fx, nn

from .converted_classes import class_before, class_of_ours
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
        target = class_of_ours(type(module))
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
        before = class_before(type(module))
        if before is not None:
            module.__class__ = before
            for name in ("precision", "backend", "_frozen", "_requested"):
                vars(module).pop(name, None)
    return model
