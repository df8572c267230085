"""Messages of the logger "convt_ext": fallbacks at INFO, choices at DEBUG, once for each shape. On the CPU."""

from __future__ import annotations

import logging

import pytest
import torch

from convt_ext import conv_transpose2d, functional


@pytest.fixture
def said(caplog, monkeypatch):
    """Returns the messages of a level since the last call."""
    monkeypatch.setattr(functional, "_told", set())
    caplog.set_level(logging.DEBUG, "convt_ext")

    def since(level):
        messages = [record.getMessage() for record in caplog.records if record.levelno == level]
        caplog.clear()
        return messages

    return since


def test_fallbacks(said):
    x, weight = torch.ones(1, 2, 3, 4), torch.ones(2, 1, 1, 1)
    for _ in range(3):
        conv_transpose2d(x, weight)
    assert said(logging.INFO) == ["PyTorch's operator computes an input of 1x2x3x4: the input is not on a CUDA GPU"]
    conv_transpose2d(x[:, :, :1], weight)
    with pytest.raises(TypeError):
        conv_transpose2d("x", weight)
    assert [message.split(":")[0].split()[-1] for message in said(logging.INFO)] == ["1x2x1x4", "tensor"]


def test_choices(said, cpu_is_gpu):
    x, weight = torch.ones(1, 2, 3, 5, requires_grad=True), torch.ones(2, 1, 1, 1, requires_grad=True)
    for _ in range(3):
        conv_transpose2d(x, weight).sum().backward()
    messages = said(logging.DEBUG)
    starts = [
        f"{name} of 1x2x3x5 * 2x1x1x1: " for name in ("forward", "gradient of the input", "gradient of the weight")
    ]
    assert sorted(message[: len(start)] for message, start in zip(messages, starts, strict=True)) == sorted(starts)
    assert all("convt_ext, estimated" in message for message in messages)
    assert said(logging.INFO) == []


def test_nothing_is_made_ready_for_a_logger_that_is_off(monkeypatch):
    monkeypatch.setattr(functional, "_log_once", None)
    logging.getLogger("convt_ext").setLevel(logging.WARNING)
    try:
        conv_transpose2d(torch.ones(1, 2, 3, 4), torch.ones(2, 1, 1, 1))
    finally:
        logging.getLogger("convt_ext").setLevel(logging.NOTSET)
