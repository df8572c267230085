"""The seed of the random problems of the GPU tests: new problems in every run, and reproducible ones for a given seed.

CONVT_TEST_SEED sets it. Otherwise it is drawn once and passed to child processes; the shards of a run receive it from
tools/gpu_shards.py. The GPU report and every failure contain it.
"""

from __future__ import annotations

import os
import random
import secrets

SEED = int(os.environ.setdefault("CONVT_TEST_SEED", str(secrets.randbelow(2**31))))


def generator(*names: object) -> random.Random:
    """Returns a generator that depends on the run's seed and on the caller's arguments, such as a test's parameters."""
    return random.Random(" ".join(map(str, (SEED, *names))))
