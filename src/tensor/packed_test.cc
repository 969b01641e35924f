#include "tensor/packed.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(Packed, FormsAreFoundByNameOnly) {
  for (const PackedForm& form : kPackedForms)
    EXPECT_EQ(find_packed_form(form.name), &form);
  EXPECT_EQ(find_packed_form("u9"), nullptr);
}

TEST(Packed, EveryRecordIsWholeCacheLines) {
  for (const PackedForm& form : kPackedForms) {
    if (is_float(form)) continue;
    for (int64_t cols = 32; cols <= kRecordCols; cols += 32)
      EXPECT_EQ(record_bytes(form, cols) % 64, 0u) << form.name << cols;
  }
}

TEST(Packed, KnownSizes) {
  // 16 channels x 256 columns: 4 bits = 2048 bytes of codes; 8 groups x (scale, bias) x 16 halves = 512
  // bytes.
  EXPECT_EQ(record_bytes(*find_packed_form("u4b"), 256), 2048u + 512u);
  EXPECT_EQ(record_bytes(*find_packed_form("u4z8"), 256), 2048u + 256u);
  EXPECT_EQ(record_bytes(*find_packed_form("u6k"), 256), 3072u + 64u + 256u);
  EXPECT_EQ(tile_bytes(*find_packed_form("u4b"), 576), 2 * (2048u + 512u) + 512u + 128u);
  EXPECT_EQ(tile_bytes(*find_packed_form("f16"), 30), 32u * 16u * 2u);
  EXPECT_EQ(tile_count(17), 2);
}

}  // namespace
}  // namespace invar
