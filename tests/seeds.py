"""The seed of the random problems of the GPU tests: other problems in every run, the same ones where it is given again.

CONVT_TEST_SEED chooses it. Otherwise it is drawn once and handed to whatever this process starts; the shards of a run
get it from tools/gpu_shards.py. The GPU report holds it, and so does every failure.
"""

from __future__ import annotations

import os
import random
import secrets

SEED = int(os.environ.setdefault("CONVT_TEST_SEED", str(secrets.randbelow(2**31))))


def generator(*names: object) -> random.Random:
    """Numbers that depend on the run's seed and on what the caller says of itself, such as a test's parameters."""
    return random.Random(" ".join(map(str, (SEED, *names))))
