#pragma once

namespace convt::binding {

// Whether this PyTorch exports the function with which casts are kept (autocast.cpp).
bool has_cached_cast();

}  // namespace convt::binding
