#include "families/families.h"

#include <iterator>

namespace convt {
namespace {

#define CONVT_ROW(Tile, name, engine, serves, fuses) \
  {#name, engine, &serves, epilogue::Fuses::fuses, &add_##name##_plans},
constexpr Family kFamilies[] = {CONVT_FAMILIES(CONVT_ROW)};
#undef CONVT_ROW

}  // namespace

Families families() { return {kFamilies, std::size(kFamilies)}; }

}  // namespace convt
