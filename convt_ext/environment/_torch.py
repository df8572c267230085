"""Private names of torch that the package uses, each read once. torch may rename or remove them without notice.

A release of torch without one of them must not break `import convt_ext`. The name then has a stand-in that does
nothing, `missing` lists it, _extension.py does not load the binary, and PyTorch's operator runs every call. Other
modules import these names only from here, except those of torch._inductor, which compile/tracing.py imports under its
own guard.
"""

from __future__ import annotations

import contextlib
import pkgutil
import types
from typing import Any

import torch

# Paths of the names in torch, in the format of `pkgutil.resolve_name`, and those that this torch lacks.
required: list[str] = []
missing: list[str] = []


def _does_nothing(*args: Any, **kwargs: Any) -> None:
    return None


class _NoTensor:
    """A type without instances."""


def _read(path: str, otherwise: Any = _does_nothing) -> Any:
    required.append(path)
    found = _read_optional(path, None)
    if found is None:
        missing.append(path)
        return otherwise
    return found


def _read_optional(path: str, otherwise: Any) -> Any:
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return otherwise


def missing_reason() -> str | None:
    """Returns None, or the names that this torch lacks, with the remedy."""
    if not missing:
        return None
    names = ", ".join(path.replace(":", ".") for path in missing)
    return (
        f"convt_ext does not support torch {torch.__version__}, which lacks {names}: "
        "install torch 2.10 to 2.13, or a newer convt_ext"
    )


# PyTorch's operators. Tools replace the names in torch.nn.functional; only functional.py checks that.
conv_transpose1d, conv_transpose2d = torch.conv_transpose1d, torch.conv_transpose2d
CONV_TRANSPOSE = {1: conv_transpose1d, 2: conv_transpose2d, 3: torch.conv_transpose3d}  # by the number of dimensions

# ---- autograd, transforms, modes

any_requires_grad = _read("torch._C:_any_requires_grad")
will_engine_execute_node = _read("torch._C:_will_engine_execute_node")
transforms_active = _read("torch._C:_are_functorch_transforms_active")
num_dispatch_modes = _read("torch._C:_len_torch_dispatch_stack")
function_modes = _read("torch.overrides:_get_current_function_mode_stack", tuple)
has_torch_function_unary = _read("torch.overrides:has_torch_function_unary")
# The active hooks for saved tensors, or None; the stand-in reports hooks.
saved_tensors_hooks = _read_optional("torch._C:_autograd._top_saved_tensors_default_hooks", lambda _: True)
disable_current_modes = _read("torch.utils._python_dispatch:_disable_current_modes", contextlib.nullcontext)
tracing_state = _read("torch._C:_get_tracing_state")
has_any_global_hook = _read("torch.nn.modules.module:_has_any_global_hook")

# The module, because its `_current_level` changes: it is -1 outside of dual levels.
_current_level = _read("torch.autograd.forward_ad:_current_level")
forward_ad: Any = torch.autograd.forward_ad
if _current_level is _does_nothing:
    forward_ad = types.SimpleNamespace(_current_level=-1)

# ---- the dispatcher

AutoDispatchBelowAutograd = _read("torch._C:_AutoDispatchBelowAutograd", contextlib.nullcontext)
ExcludeDispatchKeyGuard = _read("torch._C:_ExcludeDispatchKeyGuard", contextlib.nullcontext)
_keys = _read("torch._C:DispatchKeySet")
_of_cuda, _of_cpu = _read("torch._C:DispatchKey.AutocastCUDA"), _read("torch._C:DispatchKey.AutocastCPU")
autocast_keys: Any = None if missing else _keys(_of_cuda) | _keys(_of_cpu)
_read("torch:ops.aten.add.Tensor._op")  # exists on each op; ops.py reads it from the ops of convt_ext

# ---- types

DeviceContext = _read("torch.utils._device:DeviceContext", _NoTensor)
FakeTensor = _read("torch._subclasses.fake_tensor:FakeTensor", _NoTensor)
FunctionalTensor = _read("torch._subclasses.functional_tensor:FunctionalTensor", _NoTensor)
tree_leaves = _read("torch.utils._pytree:tree_leaves", lambda tree: [])
tree_map_only = _read("torch.utils._pytree:tree_map_only", lambda kind, function, tree: tree)

# ---- TorchScript

register_builtin_of_torchscript = _read_optional("torch.jit._builtins:_register_builtin", _does_nothing)

# ---- switches

get_cudnn_enabled = _read("torch._C:_get_cudnn_enabled")
get_cudnn_benchmark = _read("torch._C:_get_cudnn_benchmark")
get_cudnn_deterministic = _read("torch._C:_get_cudnn_deterministic")
get_deterministic_algorithms = _read("torch._C:_get_deterministic_algorithms")
get_fp32_precision = _read("torch._C:_get_fp32_precision_getter")

# ---- FLOP counts, which are optional

conv_flop_count = _read_optional("torch.utils.flop_counter:conv_flop_count", lambda *args, **kwargs: 0)
register_flop_formula = _read_optional(
    "torch.utils.flop_counter:register_flop_formula", lambda *args, **kwargs: lambda formula: formula
)

# ---- CUDA

_read("torch.cuda:_sleep")  # gpu_clock.py calls it directly
current_raw_stream: Any = _read("torch._C:_cuda_getCurrentRawStream") if torch.version.cuda else _does_nothing
