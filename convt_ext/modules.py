"""`ConvTranspose1d`, `2d` and `3d`: subclasses of PyTorch's modules that call convt_ext's functions.

Called by users and by convert.py, which converts existing modules by changing their class, so nothing here may
rely on `__init__` having run. Parameters, initialization, state_dict, `output_size` and pickling are inherited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

from .dispatch import scopes
from .dispatch.request import decode_request, encode_request, flags, keywords_of
from .functional import FUNCTIONS, TRACED_OF_FROZEN

if TYPE_CHECKING:
    from torch.nn.modules.conv import _ConvTransposeNd as _Base
else:
    _Base = nn.Module

_Sizes = int | tuple[int, ...]


class ConvTransposeMixin(_Base):
    """The code of the modules, in front of PyTorch's class among their bases."""

    _torch_forward: Any  # PyTorch's operator, for TorchScript
    stride: Any
    padding: Any
    output_padding: Any
    kernel_size: Any
    dilation: Any

    # Class attributes, because converted and unpickled modules may lack instance attributes. Type comments, because
    # TorchScript cannot read annotations here.
    precision = None  # type: str | None
    backend = None  # type: str | None
    _frozen = None
    # The `flags` that were active when nn.DataParallel made this replica for a thread.
    _requested = None  # type: str | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        output_padding: _Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _Sizes = 1,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        precision: str | None = None,
        backend: str | None = None,
    ) -> None:
        encode_request(precision, backend)  # raises an error for unknown ones
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self.precision, self.backend = precision, backend

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Computes the transposed convolution; `output_size` (spatial or full) determines the output_padding."""
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for ConvTranspose{len(self.kernel_size)}d")
        if torch.jit.is_scripting():  # TorchScript supports only PyTorch's operator
            return self._torch_forward(input, output_size)
        if self._requested is not None and not scopes.is_entered():
            precision, backend = decode_request(self._requested)
            with flags(precision=precision, backend=backend or "auto"):
                return self.forward(input, output_size)
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._asked_output_padding(input, output_size)
        is_traced_frozen = self._frozen is not None and is_compiling() and not torch.is_grad_enabled()
        function: Any = (TRACED_OF_FROZEN if is_traced_frozen else FUNCTIONS)[len(self.kernel_size)]
        return function(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation,
            precision=self.precision, backend=self.backend,
        )  # fmt: skip

    def _asked_output_padding(self, input: Tensor, output_size: list[int] | None) -> list[int]:
        """Returns the output_padding that yields `output_size`."""
        return self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, len(self.kernel_size), self.dilation
        )

    def train(self, mode: bool = True) -> Any:
        """Sets the mode as PyTorch's module does; training mode drops the frozen weight."""
        if mode:
            self._frozen = None
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._frozen = None
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._frozen = None
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[misc]
        return {name: value for name, value in state.items() if name != "_frozen"}

    def _replicate_for_data_parallel(self) -> Any:
        """Copies the active `flags` to the replica, which runs in a thread that does not inherit it."""
        replica: Any = super()._replicate_for_data_parallel()
        replica._frozen = None
        replica._requested = scopes.now().requested or self._requested
        return replica

    def extra_repr(self) -> str:
        """Returns PyTorch's text, and precision and backend if they are set."""
        words = keywords_of(self.precision, self.backend)
        return f"{super().extra_repr()}, {words}" if words else super().extra_repr()


class LazyConvTransposeMixin(nn.Module):
    """The constructor of the lazy modules."""

    def __init__(self, *args: Any, precision: str | None = None, backend: str | None = None, **kwargs: Any) -> None:
        encode_request(precision, backend)
        super().__init__(*args, **kwargs)
        self.precision, self.backend = precision, backend


class ConvTranspose1d(ConvTransposeMixin, nn.ConvTranspose1d):  # type: ignore[misc]
    """`torch.nn.ConvTranspose1d` that computes with `convt_ext.conv_transpose1d`; otherwise as `ConvTranspose2d`.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype: as in `torch.nn.ConvTranspose1d`.
        precision, backend: None, or those of every call of this module.

    Shape:
        input (N, C_in, L) or (C_in, L); weight (in_channels, out_channels / groups, K); bias (out_channels,);
        result (N, C_out, OL) or (C_out, OL).

    Raises:
        The errors of `ConvTranspose2d`.

    Example:
        >>> import torch, convt_ext
        >>> up = convt_ext.ConvTranspose1d(8, 4, 16, stride=8, padding=4)
        >>> up(torch.randn(1, 8, 50)).shape
        torch.Size([1, 4, 400])
    """

    def _torch_forward(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        return F.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding, self._asked_output_padding(input, output_size),
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose2d(ConvTransposeMixin, nn.ConvTranspose2d):  # type: ignore[misc]
    """`torch.nn.ConvTranspose2d` that computes with `convt_ext.conv_transpose2d`.

    A subclass of PyTorch's class with its constructor, parameters, initialization and state_dict keys.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype: as in `torch.nn.ConvTranspose2d`.
        precision, backend: None, or those of every call of this module; see `convt_ext.conv_transpose2d`.

    Shape:
        input (N, C_in, H, W) or (C_in, H, W); weight (in_channels, out_channels / groups, kH, kW);
        bias (out_channels,); result (N, C_out, OH, OW) or (C_out, OH, OW).

    Raises:
        ValueError: an unknown precision or backend; a padding_mode other than "zeros"; an output_size out of reach.

    Determinism and source of the formula: see `convt_ext.conv_transpose2d`.

    Example:
        >>> import torch, convt_ext
        >>> up = convt_ext.ConvTranspose2d(8, 4, 3, stride=2, padding=1)
        >>> up(torch.randn(1, 8, 6, 6), output_size=(12, 12)).shape
        torch.Size([1, 4, 12, 12])
    """

    def _torch_forward(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self._asked_output_padding(input, output_size),
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose3d(ConvTransposeMixin, nn.ConvTranspose3d):  # type: ignore[misc]
    """`torch.nn.ConvTranspose3d` that computes with `convt_ext.conv_transpose3d`; otherwise as `ConvTranspose2d`.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype: as in `torch.nn.ConvTranspose3d`.
        precision, backend: None, or those of every call of this module.

    Shape:
        input (N, C_in, D, H, W) or (C_in, D, H, W); weight (in_channels, out_channels / groups, kD, kH, kW);
        bias (out_channels,); result (N, C_out, OD, OH, OW) or (C_out, OD, OH, OW).

    Raises:
        The errors of `ConvTranspose2d`.

    Example:
        >>> import torch, convt_ext
        >>> up = convt_ext.ConvTranspose3d(8, 4, 2, stride=2)
        >>> up(torch.randn(1, 8, 4, 5, 6)).shape
        torch.Size([1, 4, 8, 10, 12])
    """

    def _torch_forward(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        return F.conv_transpose3d(
            input, self.weight, self.bias, self.stride, self.padding, self._asked_output_padding(input, output_size),
            self.groups, self.dilation,
        )  # fmt: skip


class LazyConvTranspose1d(LazyConvTransposeMixin, nn.LazyConvTranspose1d, ConvTranspose1d):  # type: ignore[misc]
    """`torch.nn.LazyConvTranspose1d` that becomes `convt_ext.ConvTranspose1d`; otherwise as `LazyConvTranspose2d`.

    Raises:
        The errors of `ConvTranspose1d`.

    Example:
        >>> import torch, convt_ext
        >>> layer = convt_ext.LazyConvTranspose1d(4, 3)
        >>> layer(torch.randn(1, 8, 5)).shape, type(layer) is convt_ext.ConvTranspose1d
        (torch.Size([1, 4, 7]), True)
    """

    cls_to_become = ConvTranspose1d  # type: ignore[assignment]


class LazyConvTranspose2d(LazyConvTransposeMixin, nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """`torch.nn.LazyConvTranspose2d` that becomes `convt_ext.ConvTranspose2d` when its first input sets in_channels.

    `convert` turns PyTorch's lazy module into this class. Accepts `precision` and `backend` as `ConvTranspose2d` does.

    Raises:
        The errors of `ConvTranspose2d`.

    Example:
        >>> import torch, convt_ext
        >>> layer = convt_ext.LazyConvTranspose2d(4, 3)
        >>> layer(torch.randn(1, 8, 5, 5)).shape, type(layer) is convt_ext.ConvTranspose2d
        (torch.Size([1, 4, 7, 7]), True)
    """

    cls_to_become = ConvTranspose2d  # type: ignore[assignment]


class LazyConvTranspose3d(LazyConvTransposeMixin, nn.LazyConvTranspose3d, ConvTranspose3d):  # type: ignore[misc]
    """`torch.nn.LazyConvTranspose3d` that becomes `convt_ext.ConvTranspose3d`; otherwise as `LazyConvTranspose2d`.

    Raises:
        The errors of `ConvTranspose3d`.

    Example:
        >>> import torch, convt_ext
        >>> layer = convt_ext.LazyConvTranspose3d(4, 3)
        >>> layer(torch.randn(1, 8, 5, 5, 5)).shape, type(layer) is convt_ext.ConvTranspose3d
        (torch.Size([1, 4, 7, 7, 7]), True)
    """

    cls_to_become = ConvTranspose3d  # type: ignore[assignment]
