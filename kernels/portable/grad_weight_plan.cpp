// The layout of the portable engine's gradient of the weight, its candidates and their estimated times.
#include <algorithm>

#include "plan/cost.h"
#include "plan/plan.h"
#include "portable/grad_weight_layout.h"
#include "portable/limits.h"

namespace convt {

bool make_portable_grad_weight_layout(const ConvTProblem& problem, const PortableGradWeightTile& tile,
                                      PortableGradWeightLayout* layout) {
  *layout = PortableGradWeightLayout{};
  if (problem.direction != Direction::kGradWeight || problem.batch < 1) return false;
  if (tile.images < 1 || tile.images > problem.batch) return false;
  if (tile.instance < 0 || tile.instance >= kNumPortableGradWeightInstances || tile.stages < 2) return false;
  const PortableGradWeightInstance& instance = kPortableGradWeightInstances[tile.instance];
  if (instance.dtype != problem.dtype || !portable_can_count(problem)) return false;
  const Axis &h = layout->h = problem.h, &w = layout->w = problem.w;
  const Pixels x = pixels_of(problem, problem.c_in, h.in, w.in, problem.x_stride);
  const Pixels gy = pixels_of(problem, problem.c_out, h.out, w.out, problem.y_stride);
  if (!can_be_packed(problem, x) || !can_be_packed(problem, gy)) return false;
  if (!tile.packs_x && !lies_as_pixels(problem, x, problem.x_stride[1])) return false;
  if (!tile.packs_gy && !lies_as_pixels(problem, gy, problem.y_stride[1])) return false;
  layout->x = tile.packs_x ? packed_pixels(problem, x) : x;
  layout->gy = tile.packs_gy ? packed_pixels(problem, gy) : gy;
  const int64_t bytes = element_bytes(problem.dtype);
  layout->images = tile.images;
  layout->x_bytes = tile.packs_x ? whole_workspace(packed_image_bytes(problem, layout->x) * tile.images) : 0;
  layout->gy_bytes = tile.packs_gy ? whole_workspace(packed_image_bytes(problem, layout->gy) * tile.images) : 0;
  if (layout->x_bytes + layout->gy_bytes > kPortableMostSourceBytes) return false;

  const int64_t image_pixels = int64_t{h.in} * w.in;
  if (image_pixels > kPortableMost) return false;
  const int64_t pixels = image_pixels * tile.images;
  if (pixels < 1 || pixels > kPortableMost || tile.chunks < 1) return false;
  const int64_t stage_pixels = kPortableWeightStageBytes / bytes;
  const int64_t chunk_pixels = ceil_div(ceil_div(pixels, int64_t{tile.chunks}), stage_pixels) * stage_pixels;
  if (ceil_div(pixels, chunk_pixels) != tile.chunks) return false;
  const int64_t x_tiles = ceil_div(x.channels, instance.block), gy_tiles = ceil_div(gy.channels, instance.block);
  const int64_t launches = ceil_div(problem.batch, int64_t{tile.images});
  const int64_t taps = int64_t{h.kernel} * w.kernel, tap_blocks = problem.groups * x_tiles * gy_tiles;
  if (tap_blocks > kPortableMost || tap_blocks * taps > kPortableMost) return false;
  layout->num_blocks = tile.chunks * tap_blocks * taps;
  layout->slab_elements = weight_elements(problem);
  if (layout->num_blocks > kPortableMost || launches * tile.chunks > kPortableMost) return false;
  layout->num_slabs = static_cast<int32_t>(launches * tile.chunks);
  layout->slab_bytes = whole_workspace(slab_bytes(problem, layout->num_slabs));
  layout->image_pixels = static_cast<int32_t>(image_pixels);
  layout->num_pixels = static_cast<int32_t>(pixels);
  layout->chunk_pixels = static_cast<int32_t>(chunk_pixels);
  layout->by_columns = FastDivmod::of(w.in);
  layout->by_rows = FastDivmod::of(h.in);
  layout->by_groups = FastDivmod::of(static_cast<int32_t>(problem.groups));
  layout->by_x_tiles = FastDivmod::of(static_cast<int32_t>(x_tiles));
  layout->by_gy_tiles = FastDivmod::of(static_cast<int32_t>(gy_tiles));
  layout->by_kernel_h = FastDivmod::of(h.kernel);
  layout->by_kernel_w = FastDivmod::of(w.kernel);
  layout->stages = tile.stages;
  layout->threads = kPortableWeightThreads;
  layout->shared_bytes = tile.stages * 2 * instance.block * kPortableWeightStageBytes;
  return true;
}

namespace {

// Slabs are written once and read once.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const PortableGradWeightLayout& layout,
              const PortableGradWeightInstance& instance, Plan* plan) {
  const double launches = ceil_div(problem.batch, int64_t{layout.images});
  const double pairs = static_cast<double>(instance.block) * instance.block;
  const auto& tile = tile_of<PortableGradWeightTile>(*plan);
  const double others = 1 + launches * ((tile.packs_x ? 1 : 0) + (tile.packs_gy ? 1 : 0));
  const double moved = 2.5 * launches * static_cast<double>(layout.x_bytes + layout.gy_bytes) +
                       2 * static_cast<double>(layout.slab_bytes);
  const double of_dtype = problem.dtype == DataType::kFloat32 ? 1 : 1.19;
  const double efficiency = (0.26 + 0.27 * pairs / (128.0 * 128.0)) * of_dtype;
  const PortableSpeed speed{efficiency, 3.4, 6.6, 1.13, 0};
  estimate_portable(problem, device, {launches, others, pairs * layout.chunk_pixels, moved}, speed, plan);
}

}  // namespace

void add_portable_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradWeight || problem.batch < 1) return;
  for (int32_t index = 0; index < kNumPortableGradWeightInstances; ++index) {
    const PortableGradWeightInstance& instance = kPortableGradWeightInstances[index];
    if (instance.dtype != problem.dtype) continue;
    const int32_t stages = portable_stages(device, 2 * instance.block * kPortableWeightStageBytes);
    for (const int32_t packs : {0, 1, 2, 3}) {
      PortableGradWeightTile tile{index, stages, 1, packs % 2 != 0, packs / 2 != 0, 1};
      PortableGradWeightLayout layout;
      if (!make_portable_grad_weight_layout(problem, tile, &layout)) continue;
      tile.images = images_of_launch(problem.batch, layout.x_bytes + layout.gy_bytes);
      if (!make_portable_grad_weight_layout(problem, tile, &layout)) continue;
      // As many chunks, of whole stages, as fill this many waves of CTAs.
      const int64_t of_chunk = layout.num_blocks, pixels = layout.num_pixels;
      const int64_t stage_pixels = kPortableWeightStageBytes / element_bytes(problem.dtype);
      BestPlans chunks(1);
      int64_t tried = 0;
      for (const double waves : {0.5, 1.0, 2.0, 4.0}) {
        const auto wanted = static_cast<int64_t>(2 * device.num_sms * waves / static_cast<double>(of_chunk));
        const int64_t longest = ceil_div(ceil_div(pixels, std::clamp<int64_t>(wanted, 1, pixels)), stage_pixels);
        const int64_t count = ceil_div(pixels, longest * stage_pixels);
        if (count == tried || count > kPortableMost) continue;
        tried = count;
        tile.chunks = static_cast<int32_t>(count);
        if (!make_portable_grad_weight_layout(problem, tile, &layout)) continue;
        if (layout.slab_bytes > kMaxWorkspaceBytes && count > 1) continue;
        if (layout.shared_bytes > device.shared_per_block) continue;
        Plan plan = begin_plan(instance.name, problem.precision, tile);
        set_launch(layout, &plan);
        plan.workspace_bytes = layout.slab_bytes + layout.x_bytes + layout.gy_bytes;
        plan.result_on_vectors = !tile.packs_x;  // in this direction the tensors are x and grad_output
        plan.source_on_vectors = !tile.packs_gy;
        estimate(problem, device, layout, instance, &plan);
        chunks.consider(plan);
      }
      for (const Plan& plan : chunks.plans()) plans->push_back(plan);
    }
  }
}

}  // namespace convt
