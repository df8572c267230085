// Multiplies a stage with the weights, both in shared memory, and accumulates in registers. The order of each sum is
// co, kh, kw, ascending. Elements outside grad_output are not multiplied.
#pragma once

#include "element/arithmetic.cuh"
#include "thin/grad_input_layout.h"

namespace convt::thin {

template <DataType kDataType, int kChannelsValue, int kPositionsValue>
struct GradInputTraits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kChannels = kChannelsValue;    // result channels per thread
  static constexpr int kPositions = kPositionsValue;  // positions per thread: neighbouring rows of one column
  static constexpr int kSums = kChannels * kPositions;
};

// kCount contiguous columns, aligned for one load.
template <typename Element, int kCount>
struct alignas(sizeof(Element) * kCount) Columns {
  Element column[kCount];
};

// Addresses of a thread's operands in a stage, and its taps outside grad_output.
struct StageOperands {
  const unsigned char* s_bytes;
  int32_t source;  // byte offset of tap (0, 0) of the thread's first position, in the stage's first channel
  int32_t channel_bytes;  // stride between channels
  int32_t tap_bytes;  // stride between tap rows
  int32_t position_bytes;  // stride between position rows
  const float* s_weight;  // [channels of the stage][taps][block_ci]
  int32_t num_co;
  uint32_t columns_outside;  // bit kw: tap column kw
  int32_t row;  // row of grad_output that tap row 0 of the first position reads
};

// Multiplies kCount taps of a row from k_w on, with a column stride of kStep and kVector columns per load. row: byte
// offset of the first tap's column for the thread's first position. s_weight: weight of the first tap. rows_outside:
// bit j is set if position j's tap row is outside.
template <typename Traits, bool kInside, int kCount, int kVector, int kStep>
__device__ __forceinline__ void multiply_taps(float (&r_acc)[Traits::kChannels][Traits::kPositions],
                                              const StageOperands& operands, int32_t row, const float* s_weight,
                                              int32_t block_ci, int32_t k_w, uint32_t rows_outside) {
  using Element = typename Traits::Element;
  using Vector = Columns<Element, kVector>;
  constexpr int kChannels = Traits::kChannels, kPositions = Traits::kPositions;
  Vector r_columns[kPositions][kCount / kVector];
#pragma unroll
  for (int j = 0; j < kPositions; ++j) {
    const auto* s_position = reinterpret_cast<const Vector*>(operands.s_bytes + (row + j * operands.position_bytes));
#pragma unroll
    for (int v = 0; v < kCount / kVector; ++v) r_columns[j][v] = s_position[v * kStep];
  }
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    float r_weight[kChannels];
    if constexpr (kChannels % 4 == 0) {
#pragma unroll
      for (int c = 0; c < kChannels; c += 4) {
        const float4 quad = *reinterpret_cast<const float4*>(s_weight + t * block_ci + c);
        r_weight[c] = quad.x, r_weight[c + 1] = quad.y, r_weight[c + 2] = quad.z, r_weight[c + 3] = quad.w;
      }
    } else {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) r_weight[c] = s_weight[t * block_ci + c];
    }
    const uint32_t outside = kInside || (operands.columns_outside >> (k_w + t) & 1) == 0 ? rows_outside : ~0u;
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      if (!kInside && (outside >> j & 1) != 0) continue;
      const float column = element::to_accumulator(r_columns[j][t / kVector].column[t % kVector]);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        r_acc[c][j] = element::fused_multiply_add(column, r_weight[c], r_acc[c][j]);
      }
    }
  }
}

// Computes all products of a stage. kVector: columns per load; kStep: dilation along W, or 0 for any.
template <typename Traits, bool kInside, int kVector, int kStep>
__device__ __forceinline__ void multiply_stage(const GradInputParams& params, const StageOperands& operands,
                                               float (&r_acc)[Traits::kChannels][Traits::kPositions]) {
  constexpr int32_t kBytes = sizeof(typename Traits::Element);
  const int32_t kernel = params.w.kernel, block_ci = params.block_ci;
  const int32_t step = (kStep > 0 ? kStep : params.w.dilation) * kBytes;
  const float* s_weight = operands.s_weight;
  int32_t channel = operands.source;
#pragma unroll 1
  for (int32_t co = 0; co < operands.num_co; ++co, channel += operands.channel_bytes) {
    int32_t tap_row = channel;
#pragma unroll 1
    for (int32_t k_h = 0; k_h < params.h.kernel; ++k_h, tap_row += operands.tap_bytes) {
      uint32_t rows_outside = 0;
      if constexpr (!kInside) {
        const int32_t first = operands.row + k_h * params.h.dilation;
#pragma unroll
        for (int j = 0; j < Traits::kPositions; ++j) {
          const int32_t row = first + j * params.h.stride;
          rows_outside |= static_cast<uint32_t>(row < 0 || row >= params.h.out) << j;
        }
      }
      int32_t k_w = 0, row = tap_row;
      auto multiply = [&](auto count, auto vector, auto columns) {
        multiply_taps<Traits, kInside, count(), vector(), columns()>(r_acc, operands, row, s_weight, block_ci, k_w,
                                                                     rows_outside);
        k_w += count(), row += count() * step, s_weight += count() * block_ci;
      };
      constexpr std::integral_constant<int, 1> kOne{};
      constexpr std::integral_constant<int, 2> kTwo{};
      constexpr std::integral_constant<int, 3> kThree{};
      constexpr std::integral_constant<int, kVector> kVectorColumns{};
      constexpr std::integral_constant<int, kStep> kStepColumns{};
      if constexpr (kVector > 1) {
        // Single columns up to a vector boundary, which is the same for all positions.
#pragma unroll 1
        while (k_w < kernel && (row & (kVector * kBytes - 1)) != 0) multiply(kOne, kOne, kOne);
#pragma unroll 1
        while (k_w + kVector <= kernel) multiply(kVectorColumns, kVectorColumns, kOne);
      } else if constexpr (kStep > 0) {
#pragma unroll 1
        while (k_w + 3 <= kernel) multiply(kThree, kOne, kStepColumns);
        if (k_w + 2 <= kernel) multiply(kTwo, kOne, kStepColumns);
      }
#pragma unroll 1
      while (k_w < kernel) multiply(kOne, kOne, kOne);
    }
  }
}

template <typename Traits, bool kInside>
__device__ __forceinline__ void multiply_stage(const GradInputParams& params, const StageOperands& operands,
                                               float (&r_acc)[Traits::kChannels][Traits::kPositions]) {
  if (params.vector == 4) {
    multiply_stage<Traits, kInside, 4, 1>(params, operands, r_acc);
  } else if (params.vector == 2) {
    multiply_stage<Traits, kInside, 2, 1>(params, operands, r_acc);
  } else if (params.w.dilation == 1) {
    multiply_stage<Traits, kInside, 1, 1>(params, operands, r_acc);
  } else if (params.w.dilation == 2) {
    multiply_stage<Traits, kInside, 1, 2>(params, operands, r_acc);
  } else {
    multiply_stage<Traits, kInside, 1, 0>(params, operands, r_acc);
  }
}

}  // namespace convt::thin
