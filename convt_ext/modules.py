"""`ConvTranspose2d`: PyTorch's module, computing through our functional.

Called by users and by convert.py, which turns existing modules into these by changing their class, so
nothing here may rely on `__init__` having run. Parameters, initialisation, state_dict, `output_size`
and pickling are PyTorch's own, inherited.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.common_types import _size_2_t

from .functional import conv_transpose2d
from .precision import checked_word


class ConvTranspose2d(nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` that computes with `convt_ext.conv_transpose2d`.

    The same constructor, parameters, initialisation and state_dict keys; an instance of PyTorch's class.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype: as PyTorch's class takes them.
        precision: None, or a precision class for every call of this module, as `convt_ext.conv_transpose2d` takes it.

    Shape:
        input (N, C_in, H, W) or (C_in, H, W); weight (in_channels, out_channels / groups, kH, kW);
        bias (out_channels,); result (N, C_out, OH, OW) or (C_out, OH, OW).

    Raises:
        ValueError: an unknown precision; a padding_mode other than "zeros"; an output_size out of reach.

    Determinism and source of the formula: see `convt_ext.conv_transpose2d`.

    Example:
        >>> import torch, convt_ext
        >>> up = convt_ext.ConvTranspose2d(8, 4, 3, stride=2, padding=1)
        >>> up(torch.randn(1, 8, 6, 6), output_size=(12, 12)).shape
        torch.Size([1, 4, 12, 12])
    """

    # A class attribute, so that modules converted or pickled without one have it too. TorchScript cannot read a
    # union in an annotation here.
    precision = None  # type: str | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _size_2_t,
        stride: _size_2_t = 1,
        padding: _size_2_t = 0,
        output_padding: _size_2_t = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _size_2_t = 1,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        precision: str | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,
            padding_mode,
            device,
            dtype,
        )
        self.precision = checked_word(precision)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """The transposed convolution of `input`; `output_size` (2 long or full rank) chooses the output_padding."""
        if self.padding_mode != "zeros":
            raise ValueError("Only `zeros` padding mode is supported for ConvTranspose2d")
        output_padding = self._output_padding(
            input,
            output_size,
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            self.kernel_size,  # type: ignore[arg-type]
            2,
            self.dilation,  # type: ignore[arg-type]
        )
        if torch.jit.is_scripting():  # TorchScript knows PyTorch's operator alone
            return F.conv_transpose2d(
                input,
                self.weight,
                self.bias,
                self.stride,
                self.padding,  # type: ignore[arg-type]
                output_padding,
                self.groups,
                self.dilation,
            )
        return conv_transpose2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
            precision=self.precision,
        )

    def extra_repr(self) -> str:
        """PyTorch's text, and the precision where one is set."""
        text = super().extra_repr()
        return text if self.precision is None else f"{text}, precision={self.precision!r}"


class LazyConvTranspose2d(nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """`torch.nn.LazyConvTranspose2d` that becomes our `ConvTranspose2d` when its first input tells in_channels.

    What `convert` makes of PyTorch's lazy module; takes `precision=` as `ConvTranspose2d` does.
    """

    cls_to_become = ConvTranspose2d  # type: ignore[assignment]

    def __init__(self, *args: Any, precision: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.precision = checked_word(precision)
