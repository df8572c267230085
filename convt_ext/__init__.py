"""convt_ext: 2-D transposed convolution for PyTorch, with a documented order of every sum.

    import convt_ext as ct
    y = ct.conv_transpose2d(x, weight, bias, stride=2, padding=1)   # torch.nn.functional's signature and meaning
    up = ct.ConvTranspose2d(256, 128, 4, stride=2, padding=1)       # torch.nn's module, same state_dict
    ct.enable()                                                     # serve every call of this process, or
    ct.convert(model)                                               # swap every nn.ConvTranspose2d in place
    print(ct.report(model, x))                                      # who computes each layer, and why
    print(ct.explain(x, weight, stride=2, padding=1))               # who serves the call, how, and why

Importing needs neither a GPU nor a compiler. Set CONVT_EXT_DISABLE=1 before the import to get
PyTorch's operator everywhere.
"""

from . import tuning
from ._extension import build_info, is_available
from ._version import __version__
from .convert import convert, revert
from .enabling import disable, enable, enabled
from .explain import Explanation, explain
from .freezing import freeze, unfreeze
from .functional import conv_transpose2d
from .modules import ConvTranspose2d, LazyConvTranspose2d
from .precision import use_precision
from .report import Report, report

__all__ = [
    "ConvTranspose2d",
    "Explanation",
    "LazyConvTranspose2d",
    "Report",
    "__version__",
    "build_info",
    "conv_transpose2d",
    "convert",
    "disable",
    "enable",
    "enabled",
    "explain",
    "freeze",
    "is_available",
    "report",
    "revert",
    "tuning",
    "unfreeze",
    "use_precision",
]
