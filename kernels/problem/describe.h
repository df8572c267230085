// A problem as text, for errors. Must not know: torch, CUDA.
#pragma once

#include <string>

#include "problem/problem.h"
#include "problem/shapes.h"

namespace convt {

// "forward of input [2, 64, 8, 8] (strides [4096, 64, 8, 1]), weight ..., stride [2, 2], ...".
inline std::string describe(const ConvTProblem& problem) {
  const auto list = [](const int64_t* numbers, int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
    return text + "]";
  };
  const auto pair = [&](const char* name, int64_t h, int64_t w) {
    const int64_t numbers[2] = {h, w};
    return std::string(", ") + name + " " + list(numbers, 2);
  };
  const Shapes shapes = shapes_of(problem);
  const Axis &h = problem.h, &w = problem.w;
  const Axis& d = problem.d;
  const auto planes = [](int64_t number) { return std::to_string(number); };
  const std::string depth = !is_volume(problem) ? ""
                                                : ", depth " + planes(d.in) + " to " + planes(d.out) + " (kernel " +
                                                      planes(d.kernel) + ", stride " + planes(d.stride) + ", padding " +
                                                      planes(d.padding) + ", dilation " + planes(d.dilation) +
                                                      ", strides in memory " + planes(problem.x_plane) + ", " +
                                                      planes(problem.w_plane) + ", " + planes(problem.y_plane) + ")";
  return std::string(name_of(problem.direction)) + " in " + name_of(problem.dtype) + " and class " +
         name_of(problem.precision) + " of input " + list(shapes.x, 4) + " (strides " + list(problem.x_stride, 4) +
         "), weight " + list(shapes.w, 4) + " (strides " + list(problem.w_stride, 4) + ") and output " +
         list(shapes.y, 4) + " (strides " + list(problem.y_stride, 4) + ")" + pair("stride", h.stride, w.stride) +
         pair("padding", h.padding, w.padding) + pair("dilation", h.dilation, w.dilation) + depth + ", groups " +
         std::to_string(problem.groups);
}

}  // namespace convt
