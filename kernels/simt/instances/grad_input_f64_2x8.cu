#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_f64_2x8)
