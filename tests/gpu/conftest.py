"""Fixtures of the GPU tests."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from oracle.plugin import oracle

from convt_ext.dispatch import routing

__all__ = ["oracle", "room"]

WAIT_FOR_MEMORY = 60  # seconds, until processes beside this one have given theirs back
MORE = 2**30  # bytes of temporary tensors


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Nothing was compiled and nothing decided before the test, and nothing of it stays."""
    torch._dynamo.reset()
    routing.forget()
    yield
    torch._dynamo.reset()
    routing.forget()


@pytest.fixture
def room() -> Iterator[Callable[[int], None]]:
    """A function that gives the test so many bytes of GPU memory, and this GPU's other tests of that kind none.

    It waits for both. A GPU that never has that much is the only reason for a skip: one that hides what others hold
    would hide the test.
    """
    with contextlib.ExitStack() as held:

        def claim(num_bytes: int) -> None:
            wanted = num_bytes + MORE
            properties = torch.cuda.get_device_properties(0)
            if properties.total_memory < wanted + MORE:
                total = properties.total_memory / 2**30
                pytest.skip(f"needs {wanted / 2**30:.0f} GiB of GPU memory, and this GPU has {total:.0f} in all")
            # Every process of this machine that runs GPU tests takes its turn; who ends gives it back.
            lock = held.enter_context(open(Path(tempfile.gettempdir()) / f"convt_ext_{properties.uuid}.lock", "a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            deadline = time.monotonic() + WAIT_FOR_MEMORY
            while True:
                gc.collect()
                torch.cuda.empty_cache()
                free = torch.cuda.mem_get_info()[0]
                if free >= wanted:
                    return
                if time.monotonic() > deadline:
                    pytest.fail(f"{wanted / 2**30:.0f} GiB of GPU memory are wanted, and {free / 2**30:.1f} are free")
                time.sleep(0.2)

        yield claim
        gc.collect()
        torch.cuda.empty_cache()
