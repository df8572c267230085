"""convt_ext: 1-D and 2-D transposed convolution for PyTorch, with a documented order of accumulation.

    import convt_ext as ct
    y = ct.conv_transpose2d(x, weight, bias, stride=2, padding=1)   # signature and semantics of torch.nn.functional
    up = ct.ConvTranspose2d(256, 128, 4, stride=2, padding=1)       # subclass of torch.nn's module, same state_dict
    ct.enable()                                                     # replace the operator in this process, or
    ct.convert(model)                                               # convert a model's layers in place
    print(ct.report(model, x))                                      # what runs each layer, and why
    print(ct.explain(x, weight, stride=2, padding=1))               # what runs one call, how, and why

Importing needs neither a GPU nor a compiler. Set CONVT_EXT_DISABLE=1 before the import to use
PyTorch's operator for every call.
"""

from . import tuning
from ._version import __version__
from .convert import convert, revert
from .dispatch.request import flags, use_precision
from .enabling import disable, enable, enabled
from .environment._extension import build_info, is_available
from .explain import Explanation, explain
from .freezing import freeze, unfreeze
from .functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from .modules import (
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
)
from .report import Report, report

__all__ = [
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Explanation", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "Report", "__version__", "build_info", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convert", "disable", "enable", "enabled", "explain", "flags", "freeze",
    "is_available", "report", "revert", "tuning", "unfreeze", "use_precision",
]  # fmt: skip
