// Candidates of the thin engine's outer products for the gradient of the weight, and their estimated times. What
// decides bits is chosen for one reference GPU whatever the GPU is, within the shared memory that every GPU has.
#include "plan/thin_outer_weight.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "plan/cost.h"
#include "plan/engines.h"
#include "plan/grad_weight.h"
#include "plan/plan.h"

namespace convt {
namespace {

constexpr int32_t kReservedBytes = 1024;     // shared memory that CUDA keeps of every CTA
constexpr int32_t kSharedLimit = 63 * 1024;  // of compute capability 7.5, the least; 1 KiB is the system's
constexpr int64_t kLongestChain = 16384;     // pixels that one float32 chain adds up, where the workspace allows

// CTAs of one SM: a thread has 128 registers.
int64_t resident_blocks(const DeviceInfo& device, const ThinOuterWeightLayout& layout) {
  return std::min<int64_t>(device.shared_per_sm / (layout.shared_bytes + kReservedBytes), 512 / layout.threads);
}

// On the reference GPU.
void estimate(const ConvTProblem& problem, int32_t width, const ThinOuterWeightLayout& layout, Plan* plan) {
  const DeviceInfo device = h200();
  const double warps = layout.threads / 32.0;
  const double resident = static_cast<double>(
      std::min<int64_t>(resident_blocks(device, layout), ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const double vectors = kOuterColumns / width;
  // Warp instructions of a pixel.
  const double slots = 64 + 2 + 2 * vectors + 4;
  const double wavefronts = 2 * 2.5 + vectors * (width == 4 ? 2.5 : width == 2 ? 1.5 : 1);
  const double pixels = std::min(layout.tile_w, layout.w.in) * std::min(layout.tile_h, layout.h.in);
  const double of_thread = std::ceil(std::min(layout.tile_w, layout.w.in) / static_cast<double>(layout.splits)) *
                           std::min(layout.tile_h, layout.h.in);
  const double staged = 4 * (pixels * layout.block_ci + static_cast<double>(layout.rows.extent) * layout.gy_pitch);
  auto copy = [](int64_t a, int64_t b) { return a % 4 == 0 && b % 4 == 0 ? 4 : a % 2 == 0 && b % 2 == 0 ? 2 : 1; };
  const int64_t c_out = layout.c_out;
  const double copies = pixels * layout.block_ci / copy(layout.c_in, 4) / 32 +
                        static_cast<double>(layout.rows.extent) * layout.gy_pitch /
                            copy(c_out * problem.w.padding, c_out * problem.w.out) / 32;
  const double issue = (warps * (of_thread * slots + layout.tile_h * 30 + 120) + copies * 16) / 4;
  const double shared = warps * of_thread * wavefronts + copies * 4;
  const double stages = static_cast<double>(std::min(layout.tiles_per_chunk, layout.pixel_tiles));
  const double busy = std::min(0.9, 0.45 + 0.03 * resident * warps);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms / resident);
  const double cta_cycles = stages * (std::max(issue, shared) / busy + 400 / resident) + 3000;
  plan->compute_us = waves * resident * cta_cycles / (device.clock_ghz * 1e3);

  const double bytes = 4 * (input_elements(problem) + output_elements(problem));
  const double l2 = static_cast<double>(layout.num_blocks) * stages * staged;
  plan->memory_us = std::max((bytes + 2.0 * static_cast<double>(plan->workspace_bytes)) / (device.copy_gb_per_s * 1e3),
                             l2 / (device.copy_gb_per_s * 1.2e3));
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us) +
                      8 + static_cast<double>(plan->workspace_bytes) / 3e6;
}

// Pixels to chunks: `waves` waves of CTAs on the reference GPU, chains that are not too long, slabs that fit.
void choose_chunks(const ConvTProblem& problem, const ThinOuterWeightLayout& layout, int32_t waves,
                   ThinOuterWeightPlan* tile) {
  const DeviceInfo device = h200();
  const int64_t passes = layout.num_blocks / layout.chunks;
  const int64_t tile_pixels = int64_t{layout.tile_h} * ceil_div(layout.tile_w, layout.splits);  // of a thread
  int64_t chunks = std::max(device.num_sms * resident_blocks(device, layout) * waves / passes,
                            ceil_div(layout.pixel_tiles * tile_pixels, kLongestChain));
  chunks = std::min(chunks, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, layout.pixel_tiles);
  tile->tiles_per_chunk = static_cast<int32_t>(ceil_div(int64_t{layout.pixel_tiles}, chunks));
}

// The parts of `total` that are as even as can be.
int32_t even_part(int32_t total, int32_t parts) { return ceil_div(total, parts); }

}  // namespace

void add_thin_outer_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.batch == 0 || problem.dtype != DataType::kFloat32 || problem.groups != 1) return;
  auto neighbours = [](const int64_t* stride, int64_t channels, int64_t columns) {
    return (channels == 1 || stride[1] == 1) && (columns == 1 || stride[3] == channels);
  };
  if (!neighbours(problem.x_stride, problem.c_in, problem.w.in)) return;
  if (!neighbours(problem.y_stride, problem.c_out, problem.w.out)) return;
  const DeviceInfo reference = h200();
  const int32_t blocks_ci = static_cast<int32_t>(ceil_div(problem.c_in, int64_t{kOuterChannels}));
  for (int32_t index = 0; index < kNumThinOuterWeightInstances; ++index) {
    const ThinOuterWeightInstance& instance = kThinOuterWeightInstances[index];
    const int32_t row_vectors =
        static_cast<int32_t>(ceil_div(problem.w.kernel * problem.c_out, int64_t{instance.width}));
    std::vector<Plan> all;
    Plan best{};
    for (int32_t ci_tiles = 1; ci_tiles <= blocks_ci; ci_tiles *= 2) {
      for (int32_t kh_tiles = 1; kh_tiles <= problem.h.kernel; ++kh_tiles) {
        for (int32_t vector_tiles = 1; vector_tiles <= row_vectors; vector_tiles *= 2) {
          if (vector_tiles > 1 && kh_tiles < problem.h.kernel) break;
          for (int32_t splits = 1; splits <= 16; splits *= 2) {
            Plan trial = begin_plan(Engine::kThin, instance.name, Precision::kIeee);
            ThinOuterWeightPlan& tile = trial.thin_outer_weight;
            tile.instance = index;
            tile.splits = splits;
            tile.block_ci = even_part(blocks_ci, ci_tiles) * kOuterChannels;
            tile.block_kh = even_part(problem.h.kernel, kh_tiles);
            tile.block_vectors = even_part(row_vectors, vector_tiles);
            Plan here{};
            for (const int32_t tile_w : {4, 8, 16, 32, 64, problem.w.in}) {
              if (tile_w > 64 || tile_w >= 2 * problem.w.in) continue;
              for (int32_t tile_h = 1; tile_h <= 16 && tile_h < 2 * problem.h.in; tile_h *= 2) {
                tile.tile_w = tile_w;
                tile.tile_h = tile_h;
                tile.tiles_per_chunk = 1;
                ThinOuterWeightLayout layout;
                if (!make_thin_outer_weight_layout(problem, tile, &layout)) continue;
                if (layout.shared_bytes > kSharedLimit) continue;
                for (const int32_t waves : {1, 2, 4}) {
                  choose_chunks(problem, layout, waves, &tile);
                  if (!make_thin_outer_weight_layout(problem, tile, &layout)) continue;
                  set_launch(layout, &trial);
                  trial.workspace_bytes = slab_bytes(problem, layout.chunks);
                  estimate(problem, instance.width, layout, &trial);
                  if (here.kernel == nullptr || trial.estimate_us < here.estimate_us) here = trial;
                  if (getenv("OUTER_ALL2")) all.push_back(trial);
                }
              }
            }
            if (here.kernel == nullptr) continue;
            all.push_back(here);
            if (best.kernel == nullptr || here.estimate_us < best.estimate_us) best = here;
          }
        }
      }
    }
    if (best.kernel == nullptr) continue;
    auto rate = [](const DeviceInfo& gpu) { return multiply_adds_per_cycle(gpu, false) * gpu.num_sms * gpu.clock_ghz; };
    const double slower = rate(reference) / rate(device);
    if (!getenv("OUTER_ALL")) all = {best};
    for (Plan& plan : all) {
      plan.compute_us *= slower;
      plan.memory_us *= slower;
      plan.estimate_us *= slower;
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
