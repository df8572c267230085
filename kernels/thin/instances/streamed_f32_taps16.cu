#include "thin/streamed_instance.cuh"

CONVT_THIN_STREAMED_INSTANCE(grad_input_f32_streamed_16x1_taps16)
