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
from pathlib import Path

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
    gradient_kernels,
    kernel_names,
    same_bits,
    tensor_core_kernels,
)
from volumes import KINDS, LAYERS, PATCHES, call_of, exact_of

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
SHORT_FOR_SOME = {
    ("k2s2", "k4s4", "patches_slice", "patches_quads_unaligned"): ("patch_sm90a",),
    ("doubled_rows", "doubled_k3", "windows_k5", "windows_k7", "vector_rows", "nhwc_gaps"): (
        "rows_sm90a",
        "nhwc_sm90a",
        "correlate_sm90a",
    ),
    ("doubled_groups", "doubled_k3_groups"): ("rows_sm90a",),
    ("few_out_k9", "few_out_chunks", "few_out_five", "few_out_nhwc", "few_out_nhwc_k9", "few_out_nhwc_five"): (
        "scatter_sm90a",
    ),
}
ENGINES_OF_SHORT = {name: engines for names, engines in SHORT_FOR_SOME.items() for name in names}

# Engines whose splits are CTAs of a cluster that share a tile.
ENGINES_OF_CLUSTERS = ("nhwc_sm90a", "patch_sm90a", "rows_sm90a")

# Plan fields that change the code path of a kernel: each combination runs once for each problem.
FIELDS_OF_WAYS = (
    "split_phases", "blocks", "split_channels", "staged", "packs_source", "packs_x", "packs_gy", "gathers",
    "rows",
)  # fmt: skip


def to_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Copies the tensor's whole storage to the GPU as bytes, and keeps strides and offset."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (elements,), (1,))
    return storage.to("cuda").as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def way_of(call: Call, plan: dict) -> tuple:
    """Returns the key of a launch; launches of one kernel with equal keys use the same code path."""
    names = ("stages", "threads")
    if plan["engine"] != "simt":
        return (
            plan["kernel"], call.channels_last, plan.get("split_phases"), plan.get("block_groups", 1) > 1,
            plan.get("tiles_per_block", 1) > 1, plan.get("chunk_ci", 1) < call.weight.shape[0] // call.groups,
        )  # fmt: skip
    return (
        plan["kernel"], call.channels_last, *(plan.get(name) for name in names), plan["tile_n"] > 1,
        plan["phases_w"] < call.stride[1], plan["phases_w"] > 1, plan["chunk_ci"] > 1,
        plan["chunk_kh"] < min(call.weight.shape[2], 2), plan["chunk_kw"] < min(call.weight.shape[3], 2),
    )  # fmt: skip


def launch_all(short: bool) -> tuple[Counter[str], list[str]]:
    """Runs the forward kernels; returns the launches per kernel, and the faults.

    Each problem runs each kernel of its class, and each new way_of() it; with `short`, only new pairs of kernel and
    layout.
    """
    launches: Counter[str] = Counter()
    wrong: list[str] = []
    seen: set[tuple] = set()
    by_name = {case.name: case for case in (*CASES, *STAGED_CASES)}
    for name in SHORT if short else PROBLEMS:
        case = by_name[name]
        exact = Call(*case.tensors(torch.float64, integers=True), **case.arguments).torch()
        for dtype, precision in CLASSES.values():
            tensors = [None if one is None else to_gpu(one) for one in case.tensors(dtype, integers=True)]
            for channels_last in (False, True):
                call = Call(*tensors, **case.arguments, precision=precision, channels_last=channels_last)
                kernels = set()
                for index, plan in enumerate(call.candidates()):
                    way = (plan["kernel"], channels_last) if short else way_of(call, plan)
                    if way in seen and (short or plan["kernel"] in kernels):
                        continue
                    seen.add(way)
                    kernels.add(plan["kernel"])
                    launches[plan["kernel"]] += 1
                    if not same_bits(call.run(index).cpu() + 0.0, exact.to(dtype) + 0.0):
                        wrong.append(f"{name}, channels_last {channels_last}: {plan}")
    return launches, wrong


def gradient_way(gradient: GradientCall, plan: dict) -> tuple:
    """Returns the key of a gradient's launch, like way_of()."""
    names = ("stages", "threads", "block_kh", "block_runs", "splits")
    return (plan["kernel"], gradient.channels_last, *(plan.get(name) for name in names), plan.get("tile_h", 1) > 1)


def launch_gradients(short: bool) -> tuple[Counter[str], list[str]]:
    """Runs the kernels of the gradients like launch_all()."""
    launches: Counter[str] = Counter()
    wrong: list[str] = []
    seen: set[tuple] = set()
    by_name = {case.name: case for case in (*CASES, *STAGED_CASES)}
    for name in SHORT if short else PROBLEMS:
        case = by_name[name]
        for dtype in DTYPES:
            call = Call(*case.tensors(dtype, integers=True), **case.arguments)
            for direction in DIRECTIONS[1:]:
                on_cpu = GradientCall.of(direction, call, integers=True)
                exact = on_cpu.map(torch.Tensor.double).torch().to(dtype)
                for channels_last in (False, True):
                    gradient = on_cpu.in_layout(channels_last).map(to_gpu)
                    kernels = set()
                    for index, plan in enumerate(gradient.candidates()):
                        way = (plan["kernel"], channels_last) if short else gradient_way(gradient, plan)
                        if way in seen and (short or plan["kernel"] in kernels):
                            continue
                        seen.add(way)
                        kernels.add(plan["kernel"])
                        launches[plan["kernel"]] += 1
                        if not same_bits(gradient.run(index).cpu() + 0.0, exact + 0.0):
                            wrong.append(f"{direction} of {name}, channels_last {channels_last}: {plan}")
            grad_output = to_gpu(on_cpu.grad_output)
            if not same_bits(torch.ops.convt_ext.grad_bias(grad_output).cpu() + 0.0, bias_of(on_cpu.grad_output) + 0.0):
                wrong.append(f"grad_bias of {name} in {dtype}")
    return launches, wrong


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


def launch_tensor_cores(short: bool) -> tuple[Counter[str], list[str]]:
    """Runs the tensor-core engines in all directions like launch_all(); small integers are exact in every class."""
    launches: Counter[str] = Counter()
    wrong: list[str] = []
    seen: set[tuple] = set()
    by_name = {case.name: case for case in (*CASES, *STAGED_CASES)}
    for name in names_for_tensor_cores(short):
        case = by_name[name]
        for dtype, precision in TENSOR_CORE_CLASSES.values():
            on_cpu = Call(*case.tensors(dtype, integers=True), **case.arguments, precision=precision)
            for direction in DIRECTIONS:
                made = on_cpu if direction == "forward" else GradientCall.of(direction, on_cpu, integers=True)
                exact = made.map(torch.Tensor.double).torch().to(dtype)
                for channels_last in (False, True):
                    laid_out = made.replace(channels_last=True) if direction == "forward" else made.in_layout(True)
                    call = (laid_out if channels_last else made).map(to_gpu)
                    for index, plan in enumerate(call.candidates()):
                        way: tuple = (plan["kernel"], direction, channels_last)
                        if not short:
                            way += (name, plan.get("splits", 1) > 1, *(plan.get(field) for field in FIELDS_OF_WAYS))
                        if plan["engine"] not in TENSOR_CORE_ENGINES or way in seen:
                            continue
                        if short and not in_short(name, plan):
                            continue
                        seen.add(way)
                        launches[plan["kernel"]] += 1
                        if plan["gives_grad_bias"]:
                            result, of_bias = call.run_with_bias(index)
                            right = same_bits(of_bias.cpu() + 0.0, bias_of(made.grad_output) + 0.0)
                        else:
                            result, right = call.run(index), True
                        if not (right and same_bits(result.cpu() + 0.0, exact + 0.0)):
                            wrong.append(f"{direction} of {name}, channels_last {channels_last}: {plan}")
    return launches, wrong


def launch_volumes(short: bool) -> list[str]:
    """Runs the kernels of three-dimensional layers, except those with clusters; returns the faults."""
    wrong: list[str] = []
    patches = itertools.product(("odd",) if short else ("odd", "groups", "k344"), ("tf32", "f16") if short else KINDS)
    layers = ("k3s2",) if short else ("k3s2", "gaps", "far", "groups_k3")
    overlapping = itertools.product(layers, ("ieee_f32", "aten_f32") if short else CLASSES)
    for (name, kind), direction, channels_last in itertools.product(
        (*patches, *overlapping), DIRECTIONS, (False, True)
    ):
        layer, seen = {**PATCHES, **LAYERS}[name], set()
        call = call_of(layer, kind, channels_last, direction).map(to_gpu)
        expected = exact_of(layer, direction).to(KINDS[kind][0])
        for index, plan in enumerate(call.candidates()):
            way = (plan["kernel"], plan.get("splits", 1) > 1, *(plan.get(field) for field in FIELDS_OF_WAYS))
            if way in seen or (plan["engine"] in ENGINES_OF_CLUSTERS and plan.get("splits", 1) > 1):
                continue
            seen.add(way)
            right = True
            if plan["gives_grad_bias"]:
                result, of_bias = call.run_with_bias(index)
                right = same_bits(of_bias.cpu() + 0.0, bias_of(call.grad_output.cpu()) + 0.0)
            else:
                result = call.run(index)
            if not (right and same_bits(result.cpu() + 0.0, expected + 0.0)):
                wrong.append(f"{direction} of the volume {name}, channels_last {channels_last}: {plan}")
    return wrong


def bias_of(grad_output: torch.Tensor) -> torch.Tensor:
    return grad_output.double().sum((0, *range(2, grad_output.dim()))).to(grad_output.dtype)


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
    launches, wrong = launch_all(options.short)
    of_gradients, wrong_gradients = launch_gradients(options.short)
    launches += of_gradients
    wrong += wrong_gradients
    if torch.cuda.get_device_capability() == (9, 0):
        of_tensor_cores, wrong_tensor_cores = launch_tensor_cores(options.short)
        launches += of_tensor_cores
        wrong += wrong_tensor_cores + launch_volumes(options.short)
    kernels = kernel_names() + [kernel for direction in DIRECTIONS[1:] for kernel in gradient_kernels(direction)]
    if torch.cuda.get_device_capability() == (9, 0):
        kernels += tensor_core_kernels()
    for kernel in kernels:
        print(f"launched {kernel} {launches[kernel]} times")
    missing = [kernel for kernel in kernels if not launches[kernel]]
    if missing:
        wrong.append(f"never launched: {', '.join(missing)}")
    if wrong:
        raise SystemExit("\n".join(["convt_ext: the workload found faults:", *wrong]))


if __name__ == "__main__":
    main()
