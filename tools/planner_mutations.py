"""The changes that tools/mutate_planner.py makes: a condition dropped or loosened, a term of a sum left out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """In kernels/`file`, where `before` stands once. `tests`: the file that should notice, where its name does not say
    so. `harmless` says why it may survive."""

    name: str
    file: str
    before: str
    after: str
    harmless: str = ""
    tests: str = ""


MUTATIONS = [
    Mutation(
        "nhwc: images between vectors",
        "nhwc_sm90a/plan.cpp",
        "has_map_stride(problem.batch, pixels.image_stride, element) &&",
        "true &&",
    ),
    Mutation(
        "nhwc: groups between vectors",
        "nhwc_sm90a/plan.cpp",
        "has_map_stride(problem.groups, pixels.group_stride, element) &&",
        "true &&",
    ),
    Mutation(
        "nhwc: large sources are packed",
        "nhwc_sm90a/plan.cpp",
        "packed_source_bytes(problem) <= kMostPacked",
        "true",
    ),
    Mutation(
        "nhwc: no room for the packed source",
        "nhwc_sm90a/plan.cpp",
        "if (source.packs) begun.workspace_bytes +=",
        "if (false) begun.workspace_bytes +=",
    ),
    Mutation(
        "nhwc: packed sources begin on vectors",
        "nhwc_sm90a/plan.cpp",
        "!source.gathers && !source.packs",
        "!source.gathers",
    ),
    Mutation(
        "nhwc: steps beyond a box",
        "nhwc_sm90a/plan.cpp",
        "(plan.box_h - 1) * step_h + 1 > kMostOfBox",
        "step_h > kMostOfBox",
    ),
    Mutation(
        "nhwc: two CTAs have an SM's room each",
        "nhwc_sm90a/plan.cpp",
        "device.shared_per_sm / instance.ctas - kReservedPerBlock",
        "device.shared_per_sm - kReservedPerBlock",
    ),
    Mutation(
        "nhwc: slots of weights have one tap",
        "nhwc_sm90a/plan.cpp",
        "(left - plan.weights_begin) / slot_bytes",
        "(left - plan.weights_begin) / tap_bytes",
    ),
    Mutation(
        "nhwc: one step of K anywhere",
        "nhwc_sm90a/plan.cpp",
        "nhwc_reads_boxes_alone(instance.k_steps) && group_places == 0",
        "false",
    ),
    Mutation(
        "nhwc: groups of eight in rows of any width",
        "nhwc_sm90a/layout.h",
        "plan.tile_w == 8 && (rows_go_on",
        "plan.tile_w % 8 == 0 && (rows_go_on",
    ),
    Mutation(
        "nhwc: no taps with boxes of their own",
        "nhwc_sm90a/plan.cpp",
        "box >= 4 * int64_t{work.positions_h} * work.positions_w &&",
        "box < 0 &&",
    ),
    Mutation(
        "nhwc: no room for staged results",
        "nhwc_sm90a/plan.cpp",
        "barrier_bytes - staged_bytes - 16 - 4 * instance.block_n",
        "barrier_bytes - 16 - 4 * instance.block_n",
    ),
    Mutation(
        "nhwc: room for the rows of one W phase",
        "nhwc_sm90a/plan.cpp",
        "plan.together > 1 ? instance.block_n : kNhwcRowChannels",
        "kNhwcRowChannels",
    ),
    Mutation(
        "nhwc: no room for gathered halves",
        "nhwc_sm90a/plan.cpp",
        "plan.gathers ? nhwc_gathered_bytes(element) : 0",
        "0",
    ),
    Mutation(
        "nhwc: rows shared by tiles that are divided",
        "nhwc_sm90a/plan.cpp",
        "tile.splits > 1 || tile.together > 1 || divided == 0",
        "tile.splits > 1 || divided == 0",
    ),
    Mutation(
        "nhwc: more parts than idle SMs",
        "nhwc_sm90a/plan.cpp",
        "std::min({int64_t{kNhwcMostParts}, device.num_sms / divided, stages / 2})",
        "std::min({int64_t{kNhwcMostParts}, stages / 2})",
    ),
    Mutation(
        "nhwc: no room for the sums of parts",
        "nhwc_sm90a/plan.cpp",
        "made.workspace_bytes += of.sums_bytes;",
        "",
    ),
    Mutation(
        "nhwc: sums of a cluster",
        "nhwc_sm90a/plan.cpp",
        "nhwc_sum_bytes(instance.blocks, plan.block_n) > plan.staged_begin",
        "false",
    ),
    Mutation(
        "nhwc: taps beyond 16 bits",
        "nhwc_sm90a/plan.cpp",
        "problem.w.kernel > INT16_MAX",
        "problem.w.kernel > INT32_MAX",
    ),
    Mutation(
        "nhwc: weights between vectors",
        "nhwc_sm90a/plan.cpp",
        "has_map_stride(problem.c_in, problem.w_stride[0], element) &&\n",
        "true &&\n",
    ),
    Mutation("strided: odd slots", "strided_sm90a/plan.cpp", "plan.source_slots % 2 != 0 || ", ""),
    Mutation(
        "strided: fewer slots of weights",
        "strided_sm90a/plan.cpp",
        " || plan.weight_slots < plan.source_slots)",
        ")",
        harmless="there are as many slots of the source as leave as many of the weights",
    ),
    Mutation(
        "strided: sums of a cluster",
        "strided_sm90a/plan.cpp",
        " && sum_bytes > plan.zeros_begin) return",
        " && false) return",
    ),
    Mutation(
        "strided: a row too long for a box",
        "strided_sm90a/plan.cpp",
        "(plan.pitch > kMostOfBox && !plan.image_copies)",
        "(plan.pitch > 2 * kMostOfBox && !plan.image_copies)",
        harmless="strips have at most 144 elements, and images that are longer are copies",
    ),
    Mutation(
        "strided: rows too many for a box",
        "strided_sm90a/plan.cpp",
        " || plan.box_rows > kMostOfBox) return",
        ") return",
        harmless="a tile of 64 quads reads at most 130 rows",
    ),
    Mutation(
        "strided: copies beyond the last channel",
        "strided_sm90a/plan.cpp",
        "if (plan.image_copies && k_channels % strided_channels(element) != 0)",
        "if (plan.image_copies && k_channels % 2 == 3)",
    ),
    Mutation(
        "scatter: units of middle tiles",
        "scatter_sm90a/plan.cpp",
        "{0, std::min(1, tiles - 1), tiles - 1}",
        "{0, tiles - 1}",
    ),
    Mutation(
        "scatter: columns between quads",
        "scatter_sm90a/plan.cpp",
        "(width - layout->reach_w) / unit * unit",
        "(width - layout->reach_w)",
    ),
    Mutation(
        "scatter: reach before a tile",
        "scatter_sm90a/plan.cpp",
        "(w.kernel - 1) * w.dilation / w.stride",
        "(w.kernel - 1) / w.stride",
    ),
    Mutation(
        "scatter: planes' table",
        "scatter_sm90a/plan.cpp",
        "layout->plane_begin + 16 * layout->num_planes",
        "layout->plane_begin + 8 * layout->num_planes",
    ),
    Mutation(
        "thin_depthwise: padding = kernel",
        "depthwise/plan.cpp",
        "(forward ? 1 : instance.stride)",
        "(forward ? 0 : instance.stride)",
    ),
    Mutation(
        "thin_depthwise: padding of gradients",
        "depthwise/plan.cpp",
        "(forward ? 1 : instance.stride)",
        "(forward ? 1 : instance.stride - 1)",
    ),
    Mutation(
        "thin_channels_last: channels between vectors",
        "depthwise/channels_last_plan.cpp",
        "problem.c_in % vector != 0)) return",
        "false)) return",
        harmless="planner and launch ask for no vector that channels_last_vector() does not give, which divides them",
    ),
    Mutation(
        "thin_channels_last: grad_output in NCHW",
        "depthwise/channels_last_plan.cpp",
        "|| (of_weight && !is_channels_last(problem.y_stride))",
        "",
        tests="test_plan_thin_depthwise.py",
    ),
    Mutation(
        "thin_direct: reach of a group",
        "direct/plan.cpp",
        "if (reach_of(sizes, source) > kMost || weight_reach(problem) > kMost)",
        "if (weight_reach(problem) > kMost)",
    ),
    Mutation(
        "thin_direct_weight: offsets",
        "direct/plan.cpp",
        "|| !holds_offsets(gy_size, problem.y_stride)",
        "",
        tests="test_plan_thin_direct_weight.py",
    ),
    Mutation(
        "thin_tiled: rows outside",
        "streamed/plan.cpp",
        "if (border > kMost || ",
        "if (border > 1e30 || ",
        harmless="make_thin_direct_layout() has counted them with the group's reach",
    ),
    Mutation(
        "thin_outer_weight: vectors of phases",
        "thin/outer_weight_plan.cpp",
        "if (w.stride * problem.c_out % width != 0 || ",
        "if (",
    ),
    Mutation(
        "thin_outer_weight: dilated vectors",
        "thin/outer_weight_plan.cpp",
        "|| (w.dilation != 1 && problem.c_out % width != 0)",
        "",
    ),
    Mutation(
        "thin: table of weights",
        "thin/layout.cpp",
        "if (4 * layout->taps * layout->outputs > layout->weight_begin) return false;",
        "",
    ),
    Mutation(
        "thin: two steps more", "thin/layout.cpp", "plan.chunk_ci * layout->taps + 2;", "plan.chunk_ci * layout->taps;"
    ),
    Mutation("window: channels of classes", "window_sm90a/plan.cpp", " || all_channels % classes[1] != 0) {", ") {"),
    Mutation(
        "window: channels of a group",
        "window_sm90a/plan.cpp",
        "gemm.k_channels % window_channels(static_cast<int32_t>(bytes)) == 0",
        "gemm.k_channels % window_channels(static_cast<int32_t>(bytes)) >= 0",
    ),
    Mutation(
        "window: fewer rows than classes",
        "window_sm90a/plan.cpp",
        "    if (sizes[axis] < classes[axis]) return {0, 0};\n",
        "",
    ),
    Mutation(
        "correlate: rows between vectors",
        "correlate_sm90a/layout.cpp",
        "has_map_stride(between, operand.stride[other_axis], element) &&",
        "has_map_stride(between > 0 ? 1 : 2, operand.stride[other_axis], element) &&",
    ),
    Mutation(
        "correlate: planes where there is padding",
        "correlate_sm90a/layout.cpp",
        "return problem.w.padding == 0 && stride[3] == 1",
        "return stride[3] == 1",
    ),
    Mutation(
        "correlate: groups of pixels between vectors",
        "correlate_sm90a/layout.cpp",
        "problem.groups > 1 && operand.group * element % 16 != 0",
        "false",
    ),
    Mutation(
        "correlate: large images are packed",
        "correlate_sm90a/plan.cpp",
        "std::max(x.packed_bytes, gy.packed_bytes) > kMostPacked * element",
        "std::max(x.packed_bytes, gy.packed_bytes) < 0",
    ),
    Mutation(
        "correlate: no room for packed operands",
        "correlate_sm90a/plan.cpp",
        "whole_workspace(x.packed_bytes * tile.images) + whole_workspace(gy.packed_bytes * tile.images) + slabs",
        "whole_workspace(gy.packed_bytes * tile.images) + slabs",
    ),
    Mutation(
        "correlate: dilated halves",
        "correlate_sm90a/layout.cpp",
        "(w.stride != instance.stride_w || w.dilation != 1)",
        "w.stride != instance.stride_w",
    ),
    Mutation(
        "correlate: stages of one step",
        "correlate_sm90a/layout.cpp",
        "if (tile.rows * layout->steps < 2) return false;  // with operands",
        "if (false) return false;  // with operands",
    ),
    Mutation(
        "correlate: pairs of an odd number of rows",
        "correlate_sm90a/layout.cpp",
        "layout->pairs_rows && tile.rows % 2 != 0",
        "false",
    ),
    Mutation(
        "correlate: parts of a product that are no rows of taps",
        "correlate_sm90a/layout.cpp",
        "return co_parts == 1 && kh_parts % parts == 0",
        "return co_parts <= 4 && kh_parts > 0",
    ),
    Mutation(
        "correlate: input channels shared by the warps of a product",
        "correlate_sm90a/layout.cpp",
        "(!patches || tile.ci_parts != instance.consumers)",
        "!patches",
    ),
    Mutation(
        "correlate: patches of rows between vectors",
        "correlate_sm90a/layout.cpp",
        "if (by_images ? !has_runs_of_positions(problem) : !has(problem.h.in, x[2])) return false;",
        "if (by_images && !has_runs_of_positions(problem)) return false;",
    ),
    Mutation(
        "correlate: no room for sums of what no tap has",
        "correlate_sm90a/plan.cpp",
        "int64_t{whole.chunks} * whole.bias_rows + rest_rows",
        "int64_t{whole.chunks} * whole.bias_rows + 0 * rest_rows",
    ),
    Mutation(
        "correlate: a bias without grad_output's last rows",
        "problem/phases.h",
        "return once && tap <= axis.kernel - axis.stride ?",
        "return once && tap < axis.kernel ?",
        tests="test_plan_correlate.py",
    ),
    Mutation(
        "correlate: a bias of planes with others' columns",
        "correlate_sm90a/bias.cpp",
        "if (layout->flat && layout->strips",
        "if (layout->flat && layout->strips < 0 && layout->strips",
        tests="test_plan_correlate.py",
    ),
    Mutation(
        "correlate: a bias of many elements that no tap has",
        "correlate_sm90a/bias.cpp",
        "bytes >= kLeastBytes && rest",
        "bytes >= 0 * kLeastBytes && rest",
        tests="test_plan_correlate.py",
    ),
    Mutation(
        "correlate: rows where pixels lie as they should",
        "correlate_sm90a/plan.cpp",
        "problem.dtype == DataType::kFloat32 : last)",
        "problem.dtype == DataType::kFloat32 : false)",
    ),
    Mutation(
        "patch_runs: lines between vectors", "patch_sm90a/runs_plan.cpp", "h.kernel * w.out * element % 16 != 0 || ", ""
    ),
    Mutation("patch_runs: lines longer than a box", "patch_sm90a/runs_plan.cpp", "w.out <= kMostBox &&", ""),
    Mutation(
        "patch_runs: sums of a cluster",
        "patch_sm90a/runs_plan.cpp",
        "layout->sums_begin + layout->sums_bytes;",
        "layout->sums_begin;",
    ),
    Mutation(
        "patch_direct: part of a box",
        "patch_sm90a/direct_plan.cpp",
        " && columns % box_columns(problem) == 0;",
        " && columns % box_columns(problem) >= 0;",
    ),
    Mutation("patch_direct: barriers of chunks", "patch_sm90a/direct_plan.cpp", " + 8 * layout->num_chunks;", ";"),
    Mutation(
        "patch: sums of a cluster",
        "patch_sm90a/plan.cpp",
        "plan.consumers * plan.blocks * kPatchPositions * kPatchChannels * 4 > plan.barriers_begin",
        "false",
        harmless="the stages that a cluster's sums take the place of have 80 KiB more",
    ),
    Mutation(
        "mma_rows: warps two rounds ahead",
        "mma_sm90a/layout.cpp",
        "if (plan.warps > units * plan.slots) return false;",
        "",
        tests="test_plan_mma.py",
    ),
    Mutation(
        "mma_rows: short rows",
        "mma_sm90a/layout.cpp",
        "y_stride[2] != w.out || w.out < 2 * sector",
        "y_stride[2] != w.out",
        tests="test_plan_mma.py",
    ),
    Mutation(
        "mma: divisions of tiles",
        "mma_sm90a/layout.cpp",
        " || tiles * std::max(layout->tiles_w, layout->tiles_h) >= (int64_t{1} << 31)) return",
        ") return",
    ),
    Mutation(
        "flat: longest window",
        "flat_sm90a/plan.cpp",
        "if (window > 4096) return false;",
        "if (window > 65536) return false;",
        harmless="three stages of so long a window do not fit into shared memory",
    ),
]
