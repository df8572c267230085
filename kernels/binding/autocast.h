#pragma once

namespace convt::binding {

// Whether this PyTorch exports the cast function of its autocast cache (autocast.cpp).
bool has_cached_cast();

}  // namespace convt::binding
