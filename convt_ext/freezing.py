"""`freeze`: weights are packed, and BatchNorms folded into them, once instead of on every call.

frozen.py keeps the copies and sees the writes that end them; fusing/folding.py keeps folded weights where a layer is
frozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from torch import nn

from .frozen import FrozenWeight
from .modules import ConvTranspose2d

_Model = TypeVar("_Model", bound=nn.Module)


def freeze(model: _Model) -> _Model:
    """Keep what inference makes of the weights of every `convt_ext.ConvTranspose2d` in `model`, in place.

    Saves 5 to 11 us a call where a tensor-core kernel serves, and the folding of a BatchNorm in models of
    ``convert(model, fuse=True)``; elsewhere nothing changes. The first call of each size packs, waits for that and
    keeps the copy: at most 8, each at most 4 MiB larger than four times the weight (kernels that would need more, as
    with many groups, pack on every call). The same kernels compute the same bits. Calls that record gradients, run
    under autocast, are traced, have an input that begins between 16 bytes, or are captured before there is a copy do as
    if nothing were frozen. `train()`, `load_state_dict()` and moves to another device or dtype end it; copies and
    pickles of a module are not frozen.

    A changed weight is seen by the next call, which packs again: an optimizer's step (a fused one too), in-place
    operations under no_grad, `torch.nn.init`, `reset_parameters()`, `weight.data = t`, `torch.utils.swap_tensors`,
    `AveragedModel` and `vector_to_parameters`. PyTorch keeps no count of these writes, and after them results are
    those of the old weight until `freeze` is called again: in-place operations on `weight.data` or on another alias
    that has a count of its own (`weight.data.copy_(t)`, `torch.from_dlpack(weight)`), kernels that write through the
    address alone (Triton, CuPy, a custom op that does not declare it), `torch._fused_*` and, before torch 2.13,
    `torch._foreach_lerp_` called by hand, another process that shares the memory, and a CUDA graph whose replay writes
    the weight. The same holds for a BatchNorm's running statistics, other than by training it. A CUDA graph that was
    captured with a copy goes on with that copy whatever is written later, so capture it again then; the copy lives as
    long as the weight's memory.

    Args:
        model: a model that `convert` has converted, or a layer, in eval mode.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is no `torch.nn.Module`.
        RuntimeError: it has no `convt_ext.ConvTranspose2d`; one of them is in training mode, or its weight is no
            Parameter of its own (a parametrization), or was made under torch.inference_mode, where writes are not
            counted. Nothing was frozen then.

    Example:
        >>> import torch, convt_ext
        >>> model = convt_ext.convert(torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 2, stride=2))).eval()
        >>> convt_ext.freeze(model) is model
        True
    """
    layers = list(_layers(model, "freeze"))
    if not layers:
        raise RuntimeError("freeze found no convt_ext.ConvTranspose2d: call convt_ext.convert(model) first")
    for name, layer in layers:
        reason = _obstacle(layer)
        if reason is not None:
            raise RuntimeError(f"freeze cannot freeze {name or 'the layer'}: {reason}")
    for _, layer in layers:
        layer._frozen = FrozenWeight(layer.weight)  # type: ignore[assignment]
    return model


def unfreeze(model: _Model) -> _Model:
    """Drop what `freeze` keeps, in place.

    Args:
        model: any module.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is no `torch.nn.Module`.

    Example:
        >>> import torch, convt_ext
        >>> layer = convt_ext.freeze(convt_ext.ConvTranspose2d(8, 4, 2).eval())
        >>> convt_ext.unfreeze(layer) is layer
        True
    """
    for _, layer in _layers(model, "unfreeze"):
        layer._frozen = None
    return model


def _layers(model: nn.Module, function: str) -> Iterator[tuple[str, ConvTranspose2d]]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function} expects a torch.nn.Module, but got {type(model).__name__}")
    return ((name, one) for name, one in model.named_modules() if isinstance(one, ConvTranspose2d))


def _obstacle(layer: ConvTranspose2d) -> str | None:
    weight = layer._parameters.get("weight")
    if layer.training:
        return "it is in training mode, and freezing is for inference: call eval() first"
    if weight is None:
        return "its weight is no Parameter, something computes it: remove its parametrization first"
    if weight.is_inference():
        return (
            "its weight was made under torch.inference_mode, where PyTorch counts no writes: make the module outside "
            "of it, calls may stay inside"
        )
    return None
