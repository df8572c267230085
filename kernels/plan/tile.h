// Type-erased tile. Each family defines its own tile type; a plan stores it without including an engine.
// Must not know: torch, CUDA, any family.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <type_traits>
#include <vector>

namespace convt {

struct TileField {
  std::string_view name;
  int64_t value;
  bool is_flag;
};

// `names`: the names of the values, separated by ", ".
template <typename... Values>
std::vector<TileField> list_fields(std::string_view names, Values... values) {
  static_assert((std::is_integral_v<Values> && ...), "readers of fields expect numbers and flags");
  std::vector<TileField> fields;
  const auto add = [&](auto value) {
    const size_t end = std::min(names.find(','), names.size());
    fields.push_back({names.substr(0, end), static_cast<int64_t>(value), std::is_same_v<decltype(value), bool>});
    names.remove_prefix(std::min(end + 2, names.size()));
  };
  (add(values), ...);
  return fields;
}

// In a tile: defines fields(), the members that distinguish tiles of one kernel and that users see.
#define CONVT_TILE_FIELDS(...) \
  std::vector<TileField> fields() const { return list_fields(#__VA_ARGS__, __VA_ARGS__); }

// One object per tile type. Its address identifies the type.
struct TileType {
  std::vector<TileField> (*fields)(const void* tile);
};

template <typename T>
inline constexpr TileType kTileType{[](const void* tile) { return static_cast<const T*>(tile)->fields(); }};

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
