"""`convert`: turn every `nn.ConvTranspose2d` of a model into ours, in place.

Works by changing the class of each module object and nothing else: its parameters, buffers, hooks,
training flag and every reference to it (shared modules, optimizers, lists) stay the very same objects,
and a root that is itself such a module needs no special case. Must not touch a class that it does not
know: a subclass with a forward of its own would lose it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from torch import fx, nn

from .converted_classes import class_before, class_of_ours
from .fusing import graph, sequential
from .modules import ConvTranspose2d
from .precision import checked_word

_log = logging.getLogger("convt_ext")

_Model = TypeVar("_Model", bound=nn.Module)

_KEEP: Any = object()  # the precision that a module has

_OF_OTHER_DIMENSIONS = (nn.ConvTranspose1d, nn.ConvTranspose3d)


def convert(
    model: _Model,
    precision: str | None = _KEEP,
    fuse: bool = False,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
) -> _Model:
    """Make every `torch.nn.ConvTranspose2d` in `model` compute with convt_ext, in place.

    Keeps Parameters, buffers, hooks, `torch.nn.utils.parametrize` and weight_norm / spectral_norm of
    either kind, shared modules and the training flag; state_dict keys do not change. Lazy modules stay
    lazy. Modules that are ours already stay, and take `precision` when it is given. `revert` turns them back.

    A subclass that defines nothing that `torch.nn.ConvTranspose2d` computes with is converted to a subclass of both.
    Others, and modules whose `forward` was replaced on the object, are left alone and named in one UserWarning. Every
    conversion is logged at INFO to the logger "convt_ext", and so are every fusion and every layer of one or three
    dimensions, which convt_ext does not have; one more UserWarning names what looks as if it could be fused and was
    left, with the reason.

    Args:
        model: any module, also a single `ConvTranspose2d`.
        precision: precision class of the modules, or None to follow PyTorch's switches; left out, modules that are ours
            keep theirs.
        fuse: whether the convolutions also take what follows them, into the kernel that computes them. In every
            `nn.Sequential`, and in models traced by `torch.fx` before or after they were converted: a BatchNorm2d that
            directly follows and is in eval mode (it becomes part of the weight and the bias), activations, Dropout in
            eval mode; in traced models also operations such as `relu(y)`, `y + residual` and `y * 0.5` whose operand
            has no other reader. Each call checks the modules and operands again. Those that no kernel takes run
            unchanged. In training mode, where gradients are recorded through a BatchNorm, with hooks, while
            something traces or transforms the call, and under `torch.compile`, it runs the modules as they are.
            Modules stay where they are, so parameters, optimizers and state_dicts stay as they were. Folding changes
            rounding (docs/numerics.md). Each call folds anew, where the weight is not larger than the result. After
            `freeze` the folded weight is kept, until a write that PyTorch counts;
            `freeze` lists the writes that it does not count, and so are those to running statistics other than
            by training the module. Called by itself, a convolution computes what it did.

        filter_fn: is called with each transposed convolution and its name in the model ("" is the model itself), and
            says whether to convert it.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is no `torch.nn.Module`.
        ValueError: an unknown precision.

    Example:
        >>> import torch, convt_ext
        >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 2, stride=2), torch.nn.ReLU())
        >>> type(convt_ext.convert(model)[0]) is convt_ext.ConvTranspose2d
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert expects a torch.nn.Module, but got {type(model).__name__}")
    checked_word(None if precision is _KEEP else precision)
    left_alone = []
    for name, module in model.named_modules():
        label = name or "the model itself"
        if isinstance(module, _OF_OTHER_DIMENSIONS):
            _log.info("left %s, a %s: convt_ext has two-dimensional layers alone", label, type(module).__name__)
        if not isinstance(module, nn.ConvTranspose2d) or (filter_fn is not None and not filter_fn(module, name)):
            continue
        if isinstance(module, ConvTranspose2d):
            _set_precision(module, precision)
            continue
        target = class_of_ours(module)
        if target is None:
            left_alone.append(f"{label} ({type(module).__module__}.{type(module).__qualname__})")
        elif "forward" in vars(module):
            left_alone.append(f"{label} (its forward was replaced on the object)")
        else:
            module.__class__ = target
            _set_precision(module, precision)
            _log.info("converted %s", label)
    if left_alone:
        warnings.warn(
            f"convt_ext.convert left {len(left_alone)} module(s) as they are, because it does not know what they "
            f"compute: {', '.join(left_alone)}",
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
        text = f"left {len(left)} that look(s) as if it could be fused: {', '.join(left)}"
    elif not done:
        text = (
            "found nothing to fuse: it looks in nn.Sequential and in traced models, so for a model with a forward of "
            "its own call convert(torch.fx.symbolic_trace(model), fuse=True)"
        )
    else:
        return
    warnings.warn(f"convt_ext.convert(fuse=True) {text}", UserWarning, stacklevel=3)


def _set_precision(module: nn.Module, precision: str | None) -> None:
    """Write the precision on the object only when one is asked for: the class says None."""
    if precision is None:
        vars(module).pop("precision", None)
    elif precision is not _KEEP:
        module.precision = precision  # type: ignore[assignment]


def revert(model: _Model) -> _Model:
    """Make every module of ours in `model` PyTorch's again, in place: what `convert` did is undone.

    Precisions and frozen weights are dropped, and so is the fusion of every `nn.Sequential`. Modules that were
    constructed as ours become PyTorch's too.

    Args:
        model: any module.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is no `torch.nn.Module`.
        ValueError: a traced graph was fused. Nothing was changed then.

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
        before = class_before(module)
        if before is not None:
            module.__class__ = before
            for name in ("precision", "_frozen", "_word"):
                vars(module).pop(name, None)
    return model
