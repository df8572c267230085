// The layout of the portable engine's forward pass and gradient of the input, its candidates and their estimated times.
#include "plan/plan.h"

#include <algorithm>

#include "plan/cost.h"
#include "portable/layout.h"
#include "portable/limits.h"
#include "problem/adjoint.h"
#include "problem/shapes.h"

namespace convt {

bool make_portable_layout(const ConvTProblem& asked, const PortableTile& tile, PortableLayout* layout) {
  *layout = PortableLayout{};
  if (asked.direction == Direction::kGradWeight || asked.batch < 1) return false;
  if (tile.images < 1 || tile.images > asked.batch) return false;
  if (tile.instance < 0 || tile.instance >= kNumPortableInstances || tile.stages < 2) return false;
  if (tile.splits < 1) return false;
  const PortableInstance& instance = kPortableInstances[tile.instance];
  const bool forward = asked.direction == Direction::kForward;
  const ConvTProblem problem = forward ? asked : adjoint_problem(asked);
  if (instance.dtype != problem.dtype || !portable_can_count(problem)) return false;
  const Axis &h = layout->h = problem.h, &w = layout->w = problem.w;
  layout->phases_h = num_phases(h);
  layout->phases_w = num_phases(w);
  layout->n_channels = static_cast<int32_t>(problem.c_out / problem.groups);
  const Pixels lies = source_pixels(asked);
  if (!can_be_packed(problem, lies)) return false;
  if (!tile.packs_source && !lies_as_pixels(problem, lies, problem.x_stride[1])) return false;
  layout->source = tile.packs_source ? packed_pixels(problem, lies) : lies;
  layout->images = tile.images;
  layout->source_bytes =
      tile.packs_source ? whole_workspace(packed_image_bytes(problem, layout->source) * tile.images) : 0;

  // 32 bits can represent each product below.
  const int64_t phases = int64_t{layout->phases_h} * layout->phases_w;
  const int64_t slot =
      ceil_div(int64_t{max_taps(h)} * max_taps(w) * layout->source.vectors, int64_t{kPortableStageVectors}) *
      kPortableStageVectors;
  const int64_t image_rows = int64_t{num_positions(h, 0)} * num_positions(w, 0);
  if (slot > kPortableMost || slot * problem.c_out > kPortableMost || image_rows > kPortableMost) return false;
  const int64_t weight_vectors = slot * problem.c_out * phases, rows = image_rows * tile.images;
  if (rows < 1 || rows > kPortableMost || weight_vectors > kPortableMost) return false;
  const int64_t m_tiles = ceil_div(rows, int64_t{instance.block_m});
  const int64_t n_tiles = ceil_div(layout->n_channels, instance.block_n);
  const int64_t tiles = problem.groups * n_tiles * phases * m_tiles;
  if (tiles > kPortableMost || tile.splits > slot / kPortableStageVectors) return false;
  layout->splits = tile.splits;
  layout->num_blocks = tiles * tile.splits;
  layout->slab_bytes = tile.splits > 1 ? layout->num_blocks * instance.block_m * instance.block_n * int64_t{4} : 0;
  layout->by_tiles = FastDivmod::of(static_cast<int32_t>(tiles));
  layout->weight_bytes = whole_workspace(16 * weight_vectors);
  if (layout->num_blocks > kPortableMost || layout->num_blocks < 1) return false;
  if (layout->weight_bytes > kMaxWorkspaceBytes || layout->source_bytes > kPortableMostSourceBytes) return false;
  if (layout->slab_bytes > kMaxWorkspaceBytes) return false;
  layout->slot_vectors = static_cast<int32_t>(slot);
  layout->image_rows = static_cast<int32_t>(image_rows);
  layout->num_rows = static_cast<int32_t>(rows);
  std::copy_n(problem.y_stride, 4, layout->result_stride);
  layout->channels_last = is_channels_last(problem.y_stride);
  layout->by_columns = FastDivmod::of(num_positions(w, 0));
  layout->by_rows = FastDivmod::of(num_positions(h, 0));
  layout->by_n_tiles = FastDivmod::of(static_cast<int32_t>(n_tiles));
  layout->by_phases = FastDivmod::of(static_cast<int32_t>(phases));
  layout->by_phases_w = FastDivmod::of(layout->phases_w);
  layout->by_m_tiles = FastDivmod::of(static_cast<int32_t>(m_tiles));
  layout->stages = tile.stages;
  const int32_t warps = instance.warps_m * instance.warps_n;
  layout->threads = 32 * warps;
  layout->shared_bytes = std::max(tile.stages * (instance.block_m + instance.block_n) * kPortableRowBytes,
                                  warps * portable_staged_bytes(instance.block_n / instance.warps_n));
  return true;
}

namespace {

// Larger tiles are more efficient, because they read operands from shared memory less often.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const PortableLayout& layout,
              const PortableInstance& instance, Plan* plan) {
  const double launches = ceil_div(problem.batch, int64_t{layout.images});
  const double taps = static_cast<double>(layout.h.kernel) * layout.w.kernel / (layout.phases_h * layout.phases_w);
  const double vectors = std::max(1.0, taps * layout.source.vectors);
  const double pairs = instance.block_m * instance.block_n;
  const bool packs = tile_of<PortableTile>(*plan).packs_source;
  const bool splits = layout.splits > 1;
  const double moved = (packs ? 2.5 * launches * static_cast<double>(layout.source_bytes) : 0.0) +
                       4 * static_cast<double>(layout.weight_bytes) +
                       2 * launches * static_cast<double>(layout.slab_bytes);
  const double products = pairs * vectors * elements_of_vector(problem.dtype) / layout.splits;
  const double others = 1 + (packs ? launches : 0.0) + (splits ? launches : 0.0);
  const double of_dtype = problem.dtype == DataType::kFloat32 ? 1 : 0.89;
  const double efficiency = (0.54 + 0.28 * pairs / (128.0 * 128.0)) * of_dtype;
  const PortableSpeed speed{efficiency, 7.2, 3.2, 0.84, 0.83};
  estimate_portable(problem, device, {launches, others, products, moved}, speed, plan);
  // Hopper's own kernels are faster in 19 of 20 calls, so estimation errors would select this engine wrongly more often
  // than rightly. Plans that were estimated to be faster by this factor were 1.3 to 1.4 times as fast.
  constexpr double kBesideHoppersOwn = 1.4;
  if (has_hopper_kernels(device)) plan->estimate_us *= kBesideHoppersOwn;
}

// As many splits of K as fill the GPU's SMs twice, with at least a few stages each.
int32_t splits_of(const PortableLayout& layout, const DeviceInfo& device) {
  constexpr int64_t kFewestStages = 4, kMostSplits = 32;
  const int64_t most = std::min(kMostSplits, layout.slot_vectors / kPortableStageVectors / kFewestStages);
  const int64_t wanted = 2 * device.num_sms / layout.num_blocks;
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, most)));
}

}  // namespace

void add_portable_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  for (int32_t index = 0; index < kNumPortableInstances; ++index) {
    const PortableInstance& instance = kPortableInstances[index];
    if (instance.dtype != problem.dtype) continue;
    for (const bool packs : {false, true}) {
      PortableTile tile{index, portable_stages(device, (instance.block_m + instance.block_n) * kPortableRowBytes), 1,
                        packs, 1};
      PortableLayout layout;
      if (!make_portable_layout(problem, tile, &layout)) continue;
      tile.images = images_of_launch(problem.batch, layout.source_bytes);
      if (!make_portable_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block) continue;
      const int32_t most = splits_of(layout, device);
      for (tile.splits = 1; tile.splits <= most; tile.splits += std::max(1, most - 1)) {
        if (!make_portable_layout(problem, tile, &layout)) continue;
        Plan plan = begin_plan(instance.name, problem.precision, tile);
        set_launch(layout, &plan);
        plan.packed_bytes = layout.weight_bytes;
        plan.workspace_bytes = layout.weight_bytes + layout.source_bytes + layout.slab_bytes;
        plan.source_on_vectors = !packs;
        estimate(problem, device, layout, instance, &plan);
        plans->push_back(plan);
      }
    }
  }
}

}  // namespace convt
