"""`freeze`: packs weights, and folds BatchNorms into them, once instead of on every call.

dispatch/frozen.py keeps the copies and detects the writes that invalidate them; epilogue/folding.py keeps the folded
weights of frozen layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from torch import nn

from .dispatch import frozen
from .modules import ConvTransposeMixin

_Model = TypeVar("_Model", bound=nn.Module)


def freeze(model: _Model) -> _Model:
    """Keeps packed and folded weights of every layer of convt_ext in `model` for inference, in place.

    Saves 5 to 11 us per call of a tensor-core kernel, the cast of the weight under autocast, and the folding of a
    BatchNorm in models of ``convert(model, fuse=True)``; other calls do not change. The first call of each size packs,
    waits for the packing and keeps the copy: at most 8 copies, each of at most four times the weight plus 4 MiB
    (kernels that need more, as with many groups, pack on every call). The bits of the result do not change. Copies are
    used by every call with the weight that records no gradient and is not traced: of a layer, of convt_ext's functions,
    and, in two and three dimensions, in programs of ``torch.compile`` without an explicit precision and without CUDA
    graphs. Calls with a residual of the result's size, with an input that is not 16-byte aligned, or captured before a
    copy exists pack as before. `train()`, `load_state_dict()` and moves to another device or dtype drop the copies;
    copies and pickles of a module are not frozen.

    The next call detects these changes of the weight and packs again: an optimizer's step (a fused one too), in-place
    operations under no_grad, `torch.nn.init`, `reset_parameters()`, `weight.data = t`, `torch.utils.swap_tensors`,
    `AveragedModel` and `vector_to_parameters`. PyTorch does not count the following writes, and after them results use
    the old weight until `freeze` is called again: in-place operations on `weight.data` or on another alias with its own
    count (`weight.data.copy_(t)`, `torch.from_dlpack(weight)`), kernels that write through the address alone (Triton,
    CuPy, a custom op that does not declare it), explicit calls of `torch._fused_*` and, before torch 2.13, of
    `torch._foreach_lerp_`, another process that shares the memory, and a replay of a CUDA graph that writes the weight.
    The same applies to a BatchNorm's running statistics, other than by training it. A CUDA graph that was captured with
    a copy keeps reading that copy after any write, so capture it again; the copy lives as long as the weight's memory.

    Args:
        model: a converted model or a layer, in eval mode.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is not a `torch.nn.Module`.
        RuntimeError: `model` contains no layer of convt_ext; a layer is in training mode; or its weight is not a
            Parameter (a parametrization) or was made under torch.inference_mode, where writes are not counted. Nothing
            is frozen then.

    Example:
        >>> import torch, convt_ext
        >>> model = convt_ext.convert(torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 2, stride=2))).eval()
        >>> convt_ext.freeze(model) is model
        True
    """
    layers = list(_layers(model, "freeze"))
    if not layers:
        raise RuntimeError("freeze found no layer of convt_ext: call convt_ext.convert(model) first")
    for name, layer in layers:
        reason = _obstacle(layer)
        if reason is not None:
            raise RuntimeError(f"freeze cannot freeze {name or 'the layer'}: {reason}")
    for _, layer in layers:
        layer._frozen = frozen.freeze(layer.weight)  # type: ignore[assignment]
    return model


def unfreeze(model: _Model) -> _Model:
    """Drops the copies that `freeze` keeps, in place.

    Args:
        model: any module.

    Returns:
        `model` itself.

    Raises:
        TypeError: `model` is not a `torch.nn.Module`.

    Example:
        >>> import torch, convt_ext
        >>> layer = convt_ext.freeze(convt_ext.ConvTranspose2d(8, 4, 2).eval())
        >>> convt_ext.unfreeze(layer) is layer
        True
    """
    for _, layer in _layers(model, "unfreeze"):
        layer._frozen = None
    return model


def _layers(model: nn.Module, function: str) -> Iterator[tuple[str, ConvTransposeMixin]]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function} expects a torch.nn.Module, but got {type(model).__name__}")
    return ((name, one) for name, one in model.named_modules() if isinstance(one, ConvTransposeMixin))


def _obstacle(layer: ConvTransposeMixin) -> str | None:
    weight = layer._parameters.get("weight")
    if layer.training:
        return "it is in training mode, and freezing is for inference: call eval() first"
    if weight is None:
        return "its weight is computed and not a Parameter: remove its parametrization first"
    if weight.is_inference():
        return (
            "its weight was made under torch.inference_mode, where PyTorch counts no writes: make the module outside "
            "of it; calls may stay inside"
        )
    return None
