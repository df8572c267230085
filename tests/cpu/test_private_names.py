"""A release of torch without one of the private names that the package reads: PyTorch's operator, and the reason."""

from __future__ import annotations

import pytest
import torch
from cpu.python_process import run

from convt_ext.environment import _extension, _torch

_WITHOUT_A_NAME = """
import pkgutil, sys
import torch, torch.fx, torch.utils.flop_counter
owner, _, name = sys.argv[1].replace(":", ".").rpartition(".")
expected = torch.conv_transpose2d(torch.ones(1, 2, 3, 3), torch.ones(2, 3, 2, 2))
owner = pkgutil.resolve_name(owner)
if name == "_current_level":  # which torch's own functions read
    sys.modules.pop("torch.autograd.forward_ad")
    sys.modules["torch.autograd.forward_ad"] = torch.autograd.forward_ad = type(sys)("forward_ad")
else:
    delattr(owner, name)
import convt_ext
assert torch.equal(convt_ext.conv_transpose2d(torch.ones(1, 2, 3, 3), torch.ones(2, 3, 2, 2)), expected)
module = convt_ext.convert(torch.nn.ConvTranspose2d(2, 3, 2))
assert module.forward(torch.ones(1, 2, 3, 3)).shape == (1, 3, 4, 4)  # to call it, torch reads private names itself
assert not convt_ext.is_available()
from convt_ext.environment.info import collect_info
print(collect_info()["reason"])
"""


def test_this_torch_lacks_nothing():
    assert _torch.missing == []
    assert _torch.missing_reason() is None


@pytest.mark.parametrize("path", _torch.required)
def test_a_missing_name_is_a_reason(path):
    found, name = run(_WITHOUT_A_NAME, path), path.replace(":", ".")
    assert found.startswith(f"convt_ext does not support torch {torch.__version__}, which lacks {name}")
    assert "install torch 2.10 to 2.13, or a newer convt_ext" in found


def test_an_old_torch_is_named_first(monkeypatch):
    monkeypatch.setattr(_torch, "missing", ["torch._C:_any"])
    assert "which lacks torch._C._any" in _extension._load()
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert _extension._load() == "convt_ext needs torch >= 2.10 and found torch 2.9.1+cu128: upgrade torch"
