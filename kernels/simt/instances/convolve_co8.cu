#include "simt/forward.cuh"

CONVT_SIMT_ROWS(CONVT_SIMT_INSTANCE, CONVT_NO_ROW)
