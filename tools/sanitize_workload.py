"""Launches the kernel instances on small problems, and checks their results.

    python tools/sanitize_workload.py [--short]  launch all instances; fail if one is not launched or a result is wrong
    python tools/sanitize_workload.py --planted  launch one on uninitialized memory, which initcheck must report

Called by sanitize.py under compute-sanitizer. Launches tensor-core kernels only on Hopper. Copies tensors as bytes, so
that no kernel of PyTorch runs. sanitize.py makes every tensor a separate allocation to detect reads past its end.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cases import CASES, STAGED_CASES
from raw_ops import (
    CLASSES,
    DIRECTIONS,
    DTYPES,
    TENSOR_CORE_CLASSES,
    TENSOR_CORE_ENGINES,
    Call,
    GradientCall,
    copy_of,
    gradient_kernels,
    kernel_names,
    same_bits,
    tensor_core_kernels,
)
from volumes import KINDS, LAYERS, PATCHES, call_of, exact_of

Launch = tuple[str, str | None]  # a kernel, and what is wrong with its result
to_gpu = partial(copy_of, device="cuda")

# Several phases, phases without taps, odd sizes, groups, no bias, padding beyond the kernel; unusual and misaligned
# strides and whole vectors; tiles of several images; chunks of taps, many chunks of channels, subsets of the W phases.
PROBLEMS = (
    "k4s2p1", "gcd_2", "kernel_below_stride_no_bias", "odd_sizes", "kb75", "padding_over_kernel", "plain",
    "channels_last", "channel_slice", "offset", "wide_row", "batch_17", "many_channels_out", "vector_rows",
    "many_taps", "wide_kernel", "tall_kernel", "wide_stride", "fcn8s", "many_stages", "groups_of_16",
    "depthwise", "depthwise_k3s2", "depthwise_k2s2", "depthwise_nhwc", "depthwise_k3s1", "depthwise_blocks",
    "depthwise_k2s2_nhwc", "depthwise_nhwc_unaligned", "depthwise_nhwc_chunks_k4s2",
    "patches", "patches_nhwc", "patches_rows", "patches_turns", "patches_wide", "patches_unaligned", "few_channels_out",
    "patches_quads_unaligned", "patches_direct", "patches_runs",
    "outer_products", "outer_products_blocks",
    "doubled", "doubled_rows", "doubled_k3", "doubled_unaligned", "doubled_groups", "doubled_k3_groups",
    "windows", "windows_k5", "windows_k7", "windows_odd",
    "nhwc", "nhwc_gaps",
    "few_out", "few_out_k9", "few_out_five", "few_out_images", "few_out_chunks", "few_out_gaps",
    "few_out_nhwc", "few_out_nhwc_k9", "few_out_nhwc_five",
    "fcn8s_channels", "windows_between", "windows_between_k5",
)  # fmt: skip


# The short list for racecheck, which checks every access of shared memory and is hundreds of times slower: one launch
# of each kernel and layout, on problems with several phases and taps.
SHORT = (
    "k4s2p1", "few_channels_out", "depthwise", "depthwise_k3s2", "depthwise_k2s2", "depthwise_k3s1",
    "depthwise_nhwc_unaligned", "depthwise_blocks", "depthwise_k2s2_nhwc", "channels_last", "patches_unaligned",
)  # fmt: skip
# Problems for some engines only: other engines have no tile for them, or run equivalent problems of the list.
_ROWS = ("rows_sm90a", "nhwc_sm90a", "correlate_sm90a")
_FEW_OUT = ("few_out_k9", "few_out_chunks", "few_out_five", "few_out_nhwc", "few_out_nhwc_k9", "few_out_nhwc_five")
ENGINES_OF_SHORT = {
    **dict.fromkeys(("k2s2", "k4s4", "patches_slice", "patches_quads_unaligned"), ("patch_sm90a",)),
    **dict.fromkeys(("doubled_rows", "doubled_k3", "windows_k5", "windows_k7", "vector_rows", "nhwc_gaps"), _ROWS),
    **dict.fromkeys(("doubled_groups", "doubled_k3_groups"), ("rows_sm90a",)),
    **dict.fromkeys(_FEW_OUT, ("scatter_sm90a",)),
}

# Engines whose splits are CTAs of a cluster that share a tile.
ENGINES_OF_CLUSTERS = ("nhwc_sm90a", "patch_sm90a", "rows_sm90a")

# Plan fields that change the code path of a kernel: each combination runs once for each problem.
FIELDS_OF_WAYS = (
    "split_phases", "blocks", "split_channels", "staged", "packs_source", "packs_x", "packs_gy", "gathers",
    "rows",
)  # fmt: skip


def is_equal(result: torch.Tensor, expected: torch.Tensor) -> bool:
    return same_bits(result.cpu() + 0.0, expected + 0.0)  # -0 counts as 0


def way_of(name: str, direction: str, call: Call | GradientCall, plan: dict, short: bool) -> tuple:
    """Returns the key of a launch; launches of one kernel with equal keys use the same code path."""
    way = (plan["kernel"], direction, call.channels_last)
    if short:
        return way
    if plan["engine"] in TENSOR_CORE_ENGINES:
        return (*way, name, plan.get("splits", 1) > 1, *(plan.get(field) for field in FIELDS_OF_WAYS))
    if isinstance(call, GradientCall):
        fields = ("stages", "threads", "block_kh", "block_runs", "splits")
        return (*way, *(plan.get(field) for field in fields), plan.get("tile_h", 1) > 1)
    if plan["engine"] != "simt":
        return (
            *way, plan.get("split_phases"), plan.get("block_groups", 1) > 1,
            plan.get("tiles_per_block", 1) > 1, plan.get("chunk_ci", 1) < call.weight.shape[0] // call.groups,
        )  # fmt: skip
    return (
        *way, plan.get("stages"), plan.get("threads"), plan["tile_n"] > 1,
        plan["phases_w"] < call.stride[1], plan["phases_w"] > 1, plan["chunk_ci"] > 1,
        plan["chunk_kh"] < min(call.weight.shape[2], 2), plan["chunk_kw"] < min(call.weight.shape[3], 2),
    )  # fmt: skip


def names_for_tensor_cores(short: bool) -> tuple[str, ...]:
    """Returns the problems of the tensor-core engines."""
    return (*SHORT, "many_channels_out", "gcd_2", *ENGINES_OF_SHORT) if short else PROBLEMS


def in_short(name: str, plan: dict) -> bool:
    """Returns whether the short list includes this plan of the problem `name`."""
    # CTAs that share a tile store their accumulators in the buffer of the weights after a cluster barrier. The thread
    # that issued the weight copies does not arrive at this barrier, so racecheck reports a false hazard. The arriving
    # threads have waited for every copy.
    shares_tile = plan["engine"] in ENGINES_OF_CLUSTERS and plan.get("splits", 1) > 1
    return plan["engine"] in ENGINES_OF_SHORT.get(name, TENSOR_CORE_ENGINES) and not shares_tile


def launch(
    names: Iterable[str], classes: Iterable[tuple[torch.dtype, str]], directions: Iterable[str], short: bool
) -> Iterator[Launch]:
    """Runs these problems in these classes and directions; small integers are exact in every class.

    Each problem runs each kernel of its class, and each new way_of() it; with `short`, only new ways. In the classes of
    tensor cores only their engines run.
    """
    by_name = {case.name: case for case in (*CASES, *STAGED_CASES)}
    seen: set[tuple] = set()
    for name, (dtype, precision), direction in itertools.product(names, classes, directions):
        case, on_tensor_cores = by_name[name], (dtype, precision) in TENSOR_CORE_CLASSES.values()
        forward = Call(*case.tensors(dtype, integers=True), **case.arguments, precision=precision)
        made = forward if direction == "forward" else GradientCall.of(direction, forward, integers=True)
        exact = made.map(torch.Tensor.double).torch().to(dtype)
        of_bias: Any = None if isinstance(made, Call) else made.grad_output.double().sum((0, 2, 3)).to(dtype)
        for last in (False, True):
            call = made.replace(channels_last=last) if isinstance(made, Call) else made.in_layout(last)
            call = call.map(to_gpu)
            kernels = set()
            for index, plan in enumerate(call.candidates()):
                if on_tensor_cores and plan["engine"] not in TENSOR_CORE_ENGINES:
                    continue
                if on_tensor_cores and short and not in_short(name, plan):
                    continue
                way = way_of(name, direction, call, plan, short)
                if way in seen and (short or plan["kernel"] in kernels):
                    continue
                seen.add(way)
                kernels.add(plan["kernel"])
                if on_tensor_cores and plan["gives_grad_bias"]:
                    result, bias = call.run_with_bias(index)
                    is_right = is_equal(bias, of_bias)
                else:
                    result, is_right = call.run(index), True
                fault = f"{direction} of {name}, channels_last {last}: {plan}"
                yield plan["kernel"], None if is_right and is_equal(result, exact) else fault
        if direction == "grad_weight" and not on_tensor_cores:
            is_right = is_equal(torch.ops.convt_ext.grad_bias(to_gpu(made.grad_output)), of_bias)
            yield "grad_bias", None if is_right else f"grad_bias of {name} in {dtype}"


def launch_volumes(short: bool) -> Iterator[Launch]:
    """Runs the kernels of three-dimensional layers in every direction, except plans with clusters."""
    patches = itertools.product(("odd",) if short else ("odd", "groups", "k344"), ("tf32", "f16") if short else KINDS)
    layers = ("k3s2",) if short else ("k3s2", "gaps", "far", "groups_k3")
    overlapping = itertools.product(layers, ("ieee_f32", "aten_f32") if short else CLASSES)
    for (name, kind), direction, last in itertools.product((*patches, *overlapping), DIRECTIONS, (False, True)):
        layer, seen = {**PATCHES, **LAYERS}[name], set()
        call = call_of(layer, kind, last, direction).map(to_gpu)
        exact = exact_of(layer, direction).to(KINDS[kind][0])
        for index, plan in enumerate(call.candidates()):
            shares_tile = plan.get("splits", 1) > 1
            way = (plan["kernel"], shares_tile, *(plan.get(field) for field in FIELDS_OF_WAYS))
            if way in seen or (plan["engine"] in ENGINES_OF_CLUSTERS and shares_tile):
                continue
            seen.add(way)
            is_right = True
            if plan["gives_grad_bias"]:
                result, bias = call.run_with_bias(index)
                is_right = is_equal(bias, call.grad_output.double().sum((0, 2, 3, 4)).to(bias.dtype))
            else:
                result = call.run(index)
            fault = f"{direction} of the volume {name}, channels_last {last}: {plan}"
            yield plan["kernel"], None if is_right and is_equal(result, exact) else fault


def planted() -> None:
    """Launches a kernel that reads uninitialized memory."""
    x = torch.empty(1, 4, 8, 8, dtype=torch.float16, device="cuda")
    Call(x, to_gpu(torch.ones(4, 8, 3, 3, dtype=torch.float16)), None).run()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", action="store_true", help="make a mistake that initcheck must report")
    parser.add_argument("--short", action="store_true", help="fewer problems, for racecheck")
    options = parser.parse_args()
    if options.planted:
        planted()
        return
    short, names = options.short, SHORT if options.short else PROBLEMS
    kernels = kernel_names() + [kernel for direction in DIRECTIONS[1:] for kernel in gradient_kernels(direction)]
    runs = [
        launch(names, CLASSES.values(), ("forward",), short),
        launch(names, [(dtype, "ieee") for dtype in DTYPES], DIRECTIONS[1:], short),
    ]
    if torch.cuda.get_device_capability() == (9, 0):
        kernels += tensor_core_kernels()
        runs.append(launch(names_for_tensor_cores(short), TENSOR_CORE_CLASSES.values(), DIRECTIONS, short))
        runs.append(launch_volumes(short))
    launches: Counter[str] = Counter()
    faults = []
    for kernel, fault in itertools.chain(*runs):
        launches[kernel] += 1
        faults += [fault] if fault else []
    for kernel in kernels:
        print(f"launched {kernel} {launches[kernel]} times")
    missing = [kernel for kernel in kernels if not launches[kernel]]
    if missing:
        faults.append(f"never launched: {', '.join(missing)}")
    if faults:
        raise SystemExit("\n".join(["convt_ext: the workload found faults:", *faults]))


if __name__ == "__main__":
    main()
