#include "format/pack.h"

#include <gmock/gmock.h>

#include <cmath>

#include "format/test_files.h"
#include "tensor/float16.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

const char* const kQuantized[] = {"Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",    "Q8_0",   "Q2_K",
                                  "Q3_K",    "Q4_K",   "Q5_K",  "Q6_K",    "IQ4_NL", "IQ4_XS",
                                  "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",  "IQ1_S",
                                  "IQ1_M",   "TQ1_0",  "TQ2_0", "MXFP4",   "NVFP4"};

uint16_t half_at(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// Reads one weight out of a packed tile, written from the description in tensor/packed.h alone.
float unpacked(const PackedForm& f, const std::byte* tile, int64_t cols, int channel, int64_t k) {
  const int64_t record = k / 256;
  const int64_t in_record = std::min<int64_t>(256, cols - record * 256);
  const std::byte* p = tile + static_cast<size_t>(record) * record_bytes(f, 256);
  const int kk = static_cast<int>(k % 256), g = kk / f.group, c = channel;
  float scale = 0, bias = 0;
  switch (f.scale) {
    case ScaleKind::kF16: {
      const std::byte* at = p + g * (f.bias == BiasKind::kF16 ? 64 : 32);
      scale = f16_to_f32(half_at(at + 2 * c));
      if (f.bias == BiasKind::kF16) bias = f16_to_f32(half_at(at + 32 + 2 * c));
      break;
    }
    case ScaleKind::kBF16: {
      const std::byte* at = p + g * (f.bias == BiasKind::kBF16 ? 64 : 32);
      scale = bf16_to_f32(half_at(at + 2 * c));
      if (f.bias == BiasKind::kBF16) bias = bf16_to_f32(half_at(at + 32 + 2 * c));
      break;
    }
    case ScaleKind::kF16xU8:
      scale = f16_to_f32(half_at(p + 2 * c)) * static_cast<float>(static_cast<uint8_t>(p[64 + 32 * g + c]));
      bias = f16_to_f32(half_at(p + 32 + 2 * c)) *
             static_cast<float>(static_cast<uint8_t>(p[64 + 32 * g + 16 + c]));
      break;
    case ScaleKind::kF32xS8:
      std::memcpy(&scale, p + 4 * c, 4);
      scale *= static_cast<float>(static_cast<int8_t>(p[64 + 16 * g + c]));
      break;
    case ScaleKind::kNone:
      break;
  }
  const std::byte* plane =
      p + scale_area_bytes(f, in_record) + static_cast<size_t>(kk / 32) * code_bytes_per_32(f);
  const int quad = kk % 32 / 4, lane = c * 4 + kk % 4;
  const auto byte = [&](int vector) { return static_cast<int>(plane[64 * vector + lane]); };
  int code = 0;
  switch (f.bits) {
    case 8:
      code = byte(quad);
      break;
    case 4:
    case 5:
    case 6:
      code = quad < 4 ? byte(quad) & 15 : byte(quad - 4) >> 4;
      if (f.bits == 5) code |= (byte(4) >> quad & 1) << 4;
      if (f.bits == 6) code |= (byte(4 + quad / 4) >> (2 * (quad % 4)) & 3) << 4;
      break;
    case 2:
      code = byte(quad / 4) >> (2 * (quad % 4)) & 3;
      break;
    case 3:
      code = (byte(quad / 4) >> (2 * (quad % 4)) & 3) | (byte(2) >> quad & 1) << 2;
      break;
  }
  if (f.table != nullptr) code = f.table->code[code];
  return std::fma(scale, static_cast<float>(code - f.zero_point), bias);
}

struct Blocks {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};
Blocks load_blocks(const std::string& type) {
  Blocks b;
  b.bytes = read_file(std::string(INVAR_TEST_DATA "/blocks/") + type + ".blocks");
  const auto raw = read_file(std::string(INVAR_TEST_DATA "/blocks/") + type + ".f32");
  b.values.resize(raw.size() / 4);
  std::memcpy(b.values.data(), raw.data(), raw.size());
  return b;
}

bool same_but_for_the_sign_of_zero(float a, float b) {
  return float_bits(a) == float_bits(b) || (a == 0 && b == 0);
}

class PackTest : public testing::TestWithParam<const char*> {};

TEST_P(PackTest, packed_weights_equal_the_reference_dequantization) {
  const WeightType& type = *weight_type_by_name(GetParam());
  const Blocks blocks = load_blocks(GetParam());
  const int64_t total = 24;
  ASSERT_EQ(blocks.bytes.size(), static_cast<size_t>(total * type.block_bytes));
  ASSERT_EQ(blocks.values.size(), static_cast<size_t>(total * type.block));
  // As 24 rows (a tile of 16, one of 8), as 3 rows of whole records, as 2 rows with a short last record.
  for (const int64_t rows : {24, 3, 2}) {
    const int64_t cols = total / rows * type.block;
    const size_t size = tile_bytes(*type.form, cols);
    std::vector<std::byte> packed(size * static_cast<size_t>(tile_count(rows)), std::byte{0xA5});
    for (int64_t tile = 0; tile < tile_count(rows); ++tile)
      ASSERT_TRUE(pack_tile(type, blocks.bytes, rows, cols, {}, tile,
                            packed.data() + static_cast<size_t>(tile) * size)
                      .ok());
    for (int64_t r = 0; r < 16 * tile_count(rows); ++r) {
      for (int64_t k = 0; k < cols; ++k) {
        const float got = unpacked(*type.form, packed.data() + static_cast<size_t>(r / 16) * size, cols,
                                   static_cast<int>(r % 16), k);
        const float want = r < rows ? blocks.values[static_cast<size_t>(r * cols + k)] : 0.0f;
        ASSERT_TRUE(same_but_for_the_sign_of_zero(got, want))
            << type.name << " row " << r << " of " << rows << ", column " << k << ": " << got << " for "
            << want;
      }
    }
  }
}

TEST_P(PackTest, rows_of_an_interleaved_matrix_equal_the_same_rows_alone) {
  const WeightType& type = *weight_type_by_name(GetParam());
  const Blocks blocks = load_blocks(GetParam());
  const int64_t rows = 12, cols = type.block;
  const auto block = static_cast<size_t>(type.block_bytes);
  std::vector<std::byte> alone;
  for (size_t r = 0; r < 12; ++r)
    alone.insert(alone.end(), blocks.bytes.begin() + (2 * r + 1) * block,
                 blocks.bytes.begin() + (2 * r + 2) * block);
  std::vector<std::byte> want(tile_bytes(*type.form, cols)), got(want.size());
  ASSERT_TRUE(pack_tile(type, alone, rows, cols, {}, 0, want.data()).ok());
  const std::span<const std::byte> odd = std::span(blocks.bytes).subspan(block);
  ASSERT_TRUE(pack_tile(type, odd.first(23 * block), rows, cols, {.step = 2}, 0, got.data()).ok());
  EXPECT_EQ(got, want);
}

TEST_P(PackTest, every_byte_of_a_tile_is_written) {
  const WeightType& type = *weight_type_by_name(GetParam());
  const Blocks blocks = load_blocks(GetParam());
  const int64_t rows = 8, cols = 3 * type.block;  // an odd number of groups: the scale area has padding
  std::vector<std::byte> clean(tile_bytes(*type.form, cols)), dirty(clean.size(), std::byte{0xA5});
  ASSERT_TRUE(pack_tile(type, blocks.bytes, rows, cols, {}, 0, clean.data()).ok());
  ASSERT_TRUE(pack_tile(type, blocks.bytes, rows, cols, {}, 0, dirty.data()).ok());
  EXPECT_EQ(clean, dirty);
}

TEST_P(PackTest, zero_scales_are_positive_and_not_finite_ones_are_an_error) {
  const WeightType& type = *weight_type_by_name(GetParam());
  if (type.form->scale == ScaleKind::kBF16) return;  // a test of its own
  if (std::string(GetParam()) == "IQ1_M") return;    // its f16 is scattered; shared code reads it
  UnpackedBlock probe;
  // The f16 fields: those whose bits move a scale or a bias.
  std::vector<size_t> fields;
  for (size_t at = 0; at + 1 < static_cast<size_t>(type.block_bytes); at += 2) {
    std::vector<std::byte> block(static_cast<size_t>(type.block_bytes), std::byte{0});
    block[at + 1] = std::byte{0x7C};  // infinity, if this is an f16
    type.unpack(block.data(), 1, &probe);
    if (type.form->scale == ScaleKind::kF32xS8) {
      if (std::isinf(probe.head)) fields.push_back(at);
    } else if (probe.d[0] == 0x7C00 ||
               (type.form->bias != BiasKind::kNone && (probe.m[0] & 0x7FFF) == 0x7C00)) {
      fields.push_back(at);
    }
  }
  const bool ternary = std::string(GetParam()).starts_with("TQ");  // one field is both
  EXPECT_EQ(fields.size(), type.form->bias == BiasKind::kNone || ternary ? 1u : 2u);
  std::vector<std::byte> tile(tile_bytes(*type.form, type.block));
  for (const size_t at : fields) {
    for (const uint16_t bad : {0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF}) {
      std::vector<std::byte> block(static_cast<size_t>(type.block_bytes), std::byte{0x11});
      for (const size_t f : fields)
        std::memcpy(block.data() + f, "\x00\x3C", 2);
      ASSERT_TRUE(pack_tile(type, block, 1, type.block, {}, 0, tile.data()).ok());
      std::memcpy(block.data() + at, &bad, 2);
      const Status status = pack_tile(type, block, 1, type.block, {}, 0, tile.data());
      EXPECT_EQ(status.code(), Code::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr("not finite"));
    }
    std::vector<std::byte> block(static_cast<size_t>(type.block_bytes), std::byte{0});
    for (const size_t f : fields)
      std::memcpy(block.data() + f, "\x00\x80", 2);  // -0
    ASSERT_TRUE(pack_tile(type, block, 1, type.block, {}, 0, tile.data()).ok());
    EXPECT_EQ(half_at(tile.data()), 0);
    EXPECT_EQ(half_at(tile.data() + 2), 0);
    EXPECT_EQ(half_at(tile.data() + 32), 0);
  }
}

// E8M0 e stands for 2^(e - 127); the table is doubled.
TEST(Pack, exponents_outside_the_limits_become_zero_or_an_error) {
  const WeightType& type = *weight_type_by_name("MXFP4");
  std::vector<std::byte> tile(tile_bytes(*type.form, 32)), block(17, std::byte{0x22});
  const auto pack = [&](int e) {
    block[0] = static_cast<std::byte>(e);
    return pack_tile(type, block, 1, 32, {}, 0, tile.data());
  };
  for (const int e : {0, 1, 2, 87}) {
    ASSERT_TRUE(pack(e).ok());
    EXPECT_EQ(half_at(tile.data()), 0) << e;
  }
  ASSERT_TRUE(pack(88).ok());
  EXPECT_EQ(bf16_to_f32(half_at(tile.data())), 0x1p-40f);
  ASSERT_TRUE(pack(191).ok());
  EXPECT_EQ(bf16_to_f32(half_at(tile.data())), 0x1p63f);
  for (const int e : {192, 254, 255}) {
    const Status status = pack(e);
    EXPECT_EQ(status.code(), Code::kCorrupt) << e;
    EXPECT_THAT(status.message(), HasSubstr("too large"));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackTest, testing::ValuesIn(kQuantized),
                         [](const auto& info) { return info.param; });

TEST(Pack, tests_cover_every_quantized_type) {
  std::vector<std::string> supported;
  for (const WeightType& t : weight_types())
    if (t.unpack != nullptr) supported.emplace_back(t.name);
  EXPECT_THAT(supported, testing::UnorderedElementsAreArray(kQuantized));
}

template <class T>
void check_float_tiles(const char* name, std::initializer_list<T> specials) {
  const WeightType& type = *weight_type_by_name(name);
  for (const int64_t cols : {1, 3, 4, 70, 130}) {
    for (const int64_t rows : {1, 16, 21}) {
      std::vector<T> values(static_cast<size_t>(rows * cols));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = i < specials.size() ? specials.begin()[i] : static_cast<T>(i * 2654435761u);
      const size_t size = tile_bytes(*type.form, cols), padded = round_up(static_cast<size_t>(cols), 4);
      ASSERT_EQ(size, padded * 16 * sizeof(T));
      for (int64_t tile = 0; tile < tile_count(rows); ++tile) {
        std::vector<T> packed(size / sizeof(T), T(0xA5A5A5A5));
        ASSERT_TRUE(pack_tile(type, std::as_bytes(std::span(values)), rows, cols, {}, tile,
                              reinterpret_cast<std::byte*>(packed.data()))
                        .ok());
        for (int64_t k = 0; k < static_cast<int64_t>(padded); ++k)
          for (int64_t c = 0; c < 16; ++c) {
            const int64_t r = tile * 16 + c;
            const T want = r < rows && k < cols ? values[static_cast<size_t>(r * cols + k)] : T(0);
            ASSERT_EQ(packed[static_cast<size_t>(k * 16 + c)], want) << name << " " << rows << "x" << cols;
          }
      }
    }
  }
}

TEST(Pack, float_tiles_keep_every_bit_nan_and_infinity_included) {
  check_float_tiles<uint32_t>("F32", {0x7FC00001, 0xFF800000, 0x80000000, 1});
  check_float_tiles<uint16_t>("F16", {0x7E01, 0xFC00, 0x8000, 1});
  check_float_tiles<uint16_t>("BF16", {0x7FC1, 0xFF80, 0x8000, 1});
}

TEST(Pack, row_order_undoes_the_interleaving_of_rotary_heads) {
  // Two heads of 8 channels, stored 0 4 1 5 2 6 3 7: the value of a stored row is the channel that it is.
  const int stored_as[] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::vector<float> rows(16);
  for (int i = 0; i < 16; ++i)
    rows[static_cast<size_t>(i)] = static_cast<float>(i / 8 * 8 + stored_as[i % 8]);
  const WeightType& f32 = *weight_type_by_name("F32");
  std::vector<float> vector(16), tile(tile_bytes(*f32.form, 1) / 4);
  ASSERT_TRUE(pack_vector(f32, std::as_bytes(std::span(rows)), 16, RowOrder{8}, vector.data()).ok());
  ASSERT_TRUE(pack_tile(f32, std::as_bytes(std::span(rows)), 16, 1, RowOrder{8}, 0,
                        reinterpret_cast<std::byte*>(tile.data()))
                  .ok());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(vector[static_cast<size_t>(i)], static_cast<float>(i));
    EXPECT_EQ(tile[static_cast<size_t>(i)], static_cast<float>(i));
  }
}

TEST(Pack, vectors_widen_exactly) {
  const uint16_t halves[] = {0x3C00, 0x0001, 0xFBFF, 0x7C00};
  float out[4];
  const auto bytes = std::as_bytes(std::span(halves));
  ASSERT_TRUE(pack_vector(*weight_type_by_name("F16"), bytes, 4, {}, out).ok());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0x1p-24f);
  EXPECT_EQ(out[2], -65504.0f);
  EXPECT_TRUE(std::isinf(out[3]));
  ASSERT_TRUE(pack_vector(*weight_type_by_name("BF16"), bytes, 4, {}, out).ok());
  EXPECT_EQ(float_bits(out[2]), 0xFBFF0000u);
  EXPECT_EQ(pack_vector(*weight_type_by_name("Q8_0"), {}, 0, {}, out).code(), Code::kUnsupported);
}

TEST(Pack, columns_of_a_transposed_matrix_equal_its_rows) {
  constexpr int64_t kRows = 21, kCols = 7;  // of the wanted matrix; the stored one has twice as many columns
  for (const char* name : {"F32", "BF16"}) {
    const WeightType& type = *weight_type_by_name(name);
    const auto size = static_cast<size_t>(type.block_bytes);
    std::vector<std::byte> rows(kRows * kCols * size), stored(2 * rows.size());
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t k = 0; k < kCols; ++k) {
        for (size_t b = 0; b < size; ++b) {
          const auto value = static_cast<std::byte>(r * 31 + k * 7 + b);
          rows[(r * kCols + k) * size + b] = value;
          stored[(k * 2 * kRows + 2 * r + 1) * size + b] = value;
        }
      }
    }
    for (int64_t tile = 0; tile < tile_count(kRows); ++tile) {
      std::vector<std::byte> want(tile_bytes(*type.form, kCols)), got(want.size(), std::byte{0xA5});
      ASSERT_TRUE(pack_tile(type, rows, kRows, kCols, {}, tile, want.data()).ok());
      ASSERT_TRUE(
          pack_transposed_tile(type, stored, 2 * kRows, 1, kRows, kCols, {.step = 2}, tile, got.data()).ok());
      EXPECT_EQ(got, want) << name << " tile " << tile;
    }
  }
}

}  // namespace
}  // namespace invar
