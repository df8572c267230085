"""Every launcher, without a GPU: what a plan promises is what is launched, whole and the same each time."""

from __future__ import annotations

import importlib
from pathlib import Path
from random import Random

import pytest
from plan import build
from plan.problems import GRAD_WEIGHT, H200, TF32, from_row
from raw_ops import gradient_kernels, kernel_names, tensor_core_kernels

NUM_PROBLEMS = 400
SHARDS = 4


@pytest.fixture(scope="module")
def launch_module():
    return build.load_or_skip("_launches")


@pytest.fixture
def dump_plans(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "tools"))
    return importlib.import_module("dump_plans")


@pytest.mark.parametrize("shard", range(SHARDS))
def test_candidates_are_launched_as_planned(launch_module, dump_plans, shard):
    """Of random problems, with operands that begin on vectors or between them."""
    draw = Random(shard)
    for number in range(NUM_PROBLEMS // SHARDS):
        one = dump_plans.random_problem(draw, number, shard)
        found = launch_module.launches(one.problem, one.device, one.offset, one.is_packed)
        for (_, kernel, _, threads, shared, blocks, *_), launched, is_launched_again in found:
            if launched == "not from there":
                assert one.offset > 0, (one, kernel)
                continue
            assert isinstance(launched, list), (one, kernel, launched)
            # In channels_last, depthwise kernels cut otherwise what they cannot read in vectors.
            if not (one.offset > 0 and kernel.endswith("channels_last")):
                grids = [(launch[2], launch[3] * launch[4], launch[5]) for launch in launched if launch[1] == kernel]
                assert grids[-1 - is_launched_again] == (blocks, threads, shared), (one, kernel)
            assert all(argument for launch in launched for argument in launch[-1])


def test_every_kernel_is_launched(launch_module, dump_plans):
    """Of the layers of networks on a Hopper GPU and on another one, and random ones."""
    expected = {*kernel_names(), *tensor_core_kernels()}
    expected |= {kernel for direction in ("grad_input", "grad_weight") for kernel in gradient_kernels(direction)}
    launched: set[str] = set()
    for one in dump_plans.asked(400, 0):
        if not one.name.startswith("random/") and not one.name.endswith(("/h200", "/a100")):
            continue
        for (_, kernel, *_), launches, _ in launch_module.launches(one.problem, one.device):
            if isinstance(launches, list):
                launched.add(kernel)
    assert sorted(expected - launched) == []


def test_the_bytes_of_arguments_are_all_written(launch_module, dump_plans):
    """Padding between them, too: the same launch twice has the same bytes, whatever was on the stack before."""
    draw = Random(0)
    for number in range(100):
        one = dump_plans.random_problem(draw, number, 0)
        first = launch_module.launches(one.problem, one.device)
        launch_module.launches(dump_plans.random_problem(Random(number), 0, 0).problem, one.device)
        assert launch_module.launches(one.problem, one.device) == first


def test_packed_weights_are_not_packed_again(launch_module, dump_plans):
    draw, seen = Random(1), 0
    for number in range(300):
        one = dump_plans.random_problem(draw, number, 1)
        packs = launch_module.launches(one.problem, one.device)
        packed = launch_module.launches(one.problem, one.device, is_packed=True)
        for (head, first, _), (_, second, _) in zip(packs, packed, strict=True):
            packing = [launch for launch in first if launch[0].endswith(" pack")]
            if head[7] == 0:  # packed_bytes
                assert second == first
                continue
            seen += 1
            assert len(packing) == 1
            again = [launch for launch in second if launch[0].endswith(" pack")]
            # The flat engine's kernel packs the source, too, and then does that alone.
            assert [launch[2] < packing[0][2] for launch in again] in ([], [True])
            assert second[-1][0] == first[-1][0]
    assert seen > 100


def test_slabs_of_many_weights_are_added_four_at_a_time(launch_module):
    """Taps are transposed where they are neighbours in the result, but not where channels are, or where there are few
    weights."""

    def last_kernels(engine: str, *row, **options) -> set[str]:
        problem = from_row(*row, precision=TF32, **options) | {"direction": GRAD_WEIGHT}
        found = launch_module.launches(problem, H200)
        return {launches[-1][0] for (of, *_), launches, _ in found if of == engine and isinstance(launches, list)}

    many, few = (1, 160, 132, (4, 16), 3, 1, 1), (1, 64, 72, (4, 16), 3, 1, 1)
    assert last_kernels("correlate_sm90a", *many) == {"add_taps"}
    assert last_kernels("correlate_sm90a", *many, channels_last=True) == {"add_few_slabs together"}
    assert last_kernels("correlate_sm90a", *few) <= {"add_few_slabs", "add_slabs"}
    # And where they find room in 48 KB of shared memory: 95 of float32.
    wide = (1, 64, 64, (4, 16), (9, 10), 1, (4, 4))
    assert last_kernels("correlate_sm90a", *wide) == {"add_taps"}
    assert last_kernels("correlate_sm90a", *wide[:4], (9, 11), *wide[5:]) == {"add_few_slabs together"}
    # Slabs of the portable engine have the strides of the result.
    assert last_kernels("portable", 1, 256, 192, (4, 16), 2, 2) == {"add_few_slabs together"}


def test_two_files_are_compared(dump_plans, tmp_path, capsys):
    lines = ["same 1 2", "planned 1 2", "launched 1 2", "gone 1 2"]
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("\n".join(lines))
    after.write_text("same 1 2\nplanned 3 4\nlaunched 1 4\n")
    assert dump_plans.compare(before, before) == 0
    assert dump_plans.compare(before, after) == 3
    words = "{'in one file alone': 1, 'launches of the same plans': 1, 'plans': 1}"
    assert capsys.readouterr().out.endswith(f"4 problems before, 3 after, 3 differ: {words}\n")
