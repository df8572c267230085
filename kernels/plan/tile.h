// Type-erased tile. Each family defines its own tile type; a plan stores it without including an engine.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace convt {

struct TileField {
  const char* name;
  int64_t value;
  bool is_flag;
};

// One object per tile type. Its address identifies the type.
struct TileType {
  std::vector<TileField> (*fields)(const void* tile);
};

template <typename T>
std::vector<TileField> fields_of_type(const void* tile) {
  std::vector<TileField> result;
  static_cast<const T*>(tile)->fields([&result](const char* name, auto value) {
    static_assert(std::is_integral_v<decltype(value)>, "readers of fields expect numbers and flags");
    result.push_back({name, static_cast<int64_t>(value), std::is_same_v<decltype(value), bool>});
  });
  return result;
}

template <typename T>
inline constexpr TileType kTileType{&fields_of_type<T>};

// A copy of a tile of any family, or empty.
class AnyTile {
 public:
  static constexpr size_t kMostBytes = 136;  // larger tiles fail to compile; plan.h limits the size of a plan

  AnyTile() = default;
  // Implicit, so that a plan's tile is assigned like any member.
  template <typename T, typename = std::enable_if_t<!std::is_same_v<T, AnyTile>>>
  AnyTile(const T& tile) : type_(&kTileType<T>) {
    static_assert(std::is_trivially_copyable_v<T>, "plans are copied byte by byte");
    static_assert(sizeof(T) <= kMostBytes && alignof(T) <= alignof(int64_t), "raise kMostBytes");
    new (bytes_) T(tile);
  }

  // The tile, or null if it has another type.
  template <typename T>
  T* get_if() {
    return type_ == &kTileType<T> ? std::launder(reinterpret_cast<T*>(bytes_)) : nullptr;
  }
  template <typename T>
  const T* get_if() const {
    return type_ == &kTileType<T> ? std::launder(reinterpret_cast<const T*>(bytes_)) : nullptr;
  }

  // Names and values, in the order of the tile's fields(). Empty without a tile.
  std::vector<TileField> fields() const { return type_ == nullptr ? std::vector<TileField>{} : type_->fields(bytes_); }

 private:
  const TileType* type_ = nullptr;
  alignas(int64_t) std::byte bytes_[kMostBytes]{};
};

static_assert(std::is_trivially_copyable_v<AnyTile>, "plans are copied byte by byte");

// Calls `field(name, value)` for each of the tile's fields, in its family's order. A value is an int64_t or a bool.
template <typename Visitor>
void visit_fields(const AnyTile& tile, Visitor&& field) {
  for (const TileField& one : tile.fields()) {
    if (one.is_flag) {
      field(one.name, one.value != 0);
    } else {
      field(one.name, one.value);
    }
  }
}

}  // namespace convt
