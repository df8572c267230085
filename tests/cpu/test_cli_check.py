"""`python -m convt_ext info` and `check` without running kernels: their output, and their requirements."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

import convt_ext
from convt_ext import __main__ as cli
from convt_ext import _extension

DISABLED = {**os.environ, "CONVT_EXT_DISABLE": "1"}


@pytest.mark.parametrize("disabled", [False, True])
def test_check_does_not_claim_kernels_that_it_did_not_run(monkeypatch, capsys, disabled):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: disabled)
    monkeypatch.setattr(_extension, "DISABLED", disabled)
    status = cli.main(["check"])
    *_, why, result = capsys.readouterr().out.splitlines()
    if convt_ext.build_info()["cuda"] is not None:
        assert ("CONVT_EXT_DISABLE is set" if disabled else "PyTorch sees no CUDA GPU") in why
        assert re.fullmatch(r"all \d+ checks passed, and no kernel was checked", result)
        assert status == 0


def test_check_names_numpy_where_it_is_missing():
    script = "import sys; sys.modules['numpy'] = None; from convt_ext.__main__ import main; sys.exit(main(['check']))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert "convt_ext check: needs the package numpy: pip install numpy" in result.stderr


def test_disabled_is_not_available():
    script = (
        "import torch, convt_ext; torch.cuda.is_available = lambda: True; torch.cuda.device_count = lambda: 1;"
        "convt_ext._extension.unsupported_reason = lambda index: None; print(convt_ext.is_available())"
    )
    run = subprocess.run([sys.executable, "-c", script], env=DISABLED, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_info_reports_how_to_enable():
    program = [sys.executable, "-m", "convt_ext", "info"]
    text = subprocess.run(program, env=DISABLED, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^kernels usable +no$", text, re.MULTILINE)
    assert re.search(r"^reason +CONVT_EXT_DISABLE is set: unset it", text, re.MULTILINE)
