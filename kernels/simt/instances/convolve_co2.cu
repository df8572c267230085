#include "simt/forward.cuh"

CONVT_SIMT_ROWS(CONVT_NO_ROW, CONVT_SIMT_INSTANCE)
