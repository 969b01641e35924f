#include "format/hf_quantized.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <random>

#include "format/pack.h"
#include "format/source_planes.h"
#include "format/test_files.h"
#include "tensor/float16.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

// Tensors in memory, as a folder would have them, and what becomes of them.
class Folder {
 public:
  Folder& add(const std::string& name, const char* type, std::vector<int64_t> shape, Bytes data) {
    bytes_.push_back(std::move(data.get()));
    tensors_.push_back({name, name, weight_type_by_name(type), std::move(shape), bytes_.back()});
    return *this;
  }
  Folder& zeros(const std::string& name, const char* type, std::vector<int64_t> shape) {
    size_t n = static_cast<size_t>(weight_type_by_name(type)->block_bytes);
    for (const int64_t d : shape)
      n *= static_cast<size_t>(d);
    return add(name, type, std::move(shape), Bytes().fill(n, 0));
  }
  Result<std::vector<SourceTensor>> join(const std::string& config) const {
    return join_quantized(config, tensors_);
  }
  std::string error(const std::string& config) const {
    const auto joined = join(config);
    return joined.ok() ? "ok" : joined.status().message();
  }

 private:
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<SourceTensor> tensors_;
};

std::string mlx(int bits, int group, const std::string& more = "") {
  return fmt::format(R"({{"quantization": {{"bits": {}, "group_size": {}{}}}}})", bits, group, more);
}

Bytes random_bytes(size_t n, std::mt19937& rng) {
  Bytes b;
  for (size_t i = 0; i < n; ++i)
    b.put(static_cast<uint8_t>(rng()));
  return b;
}

// Element k of channel `row` of the first tile.
float packed_value(const SourceTensor& t, int64_t row, int64_t k) {
  std::vector<std::byte> tile(tile_bytes(*t.type->form, t.shape[1]));
  EXPECT_TRUE(pack_tile(*t.type, t.data, t.shape[0], t.shape[1], {}, 0, tile.data(), t.planes.get()).ok());
  UnpackedBlock b;
  t.type->unpack_planes(*t.planes, row, k / 32 * 32, 32, &b);
  const PackedForm& f = *t.type->form;
  const int g = static_cast<int>(k % 32) / f.group;
  const auto half = [&](uint16_t h) { return f.scale == ScaleKind::kBF16 ? bf16_to_f32(h) : f16_to_f32(h); };
  const int code = f.table ? f.table->code[b.code[k % 32]] : b.code[k % 32];
  return std::fma(half(b.d[g]), static_cast<float>(code - f.zero_point),
                  f.bias == BiasKind::kNone ? 0 : half(b.m[g]));
}

TEST(HfQuantized, affine_codes_are_a_stream_of_bits_with_a_scale_and_a_bias_per_group) {
  std::mt19937 rng(1);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const bool bf16 : {false, true}) {
      constexpr int64_t kRows = 5, kCols = 128, kGroup = 64;
      const Bytes codes = random_bytes(static_cast<size_t>(kRows * kCols * bits / 8), rng);
      Bytes scales, biases;
      std::vector<float> s, b;
      for (int i = 0; i < kRows * kCols / kGroup; ++i) {
        const float x = 0.25f + static_cast<float>(i), y = -3.0f * static_cast<float>(i);
        s.push_back(x), b.push_back(y);
        scales.put(bf16 ? f32_to_bf16(x) : f32_to_f16(x)), biases.put(bf16 ? f32_to_bf16(y) : f32_to_f16(y));
      }
      const char* half = bf16 ? "BF16" : "F16";
      Folder folder;
      folder.add("a.weight", "U32", {kRows, kCols * bits / 32}, codes)
          .add("a.scales", half, {kRows, kCols / kGroup}, scales)
          .add("a.biases", half, {kRows, kCols / kGroup}, biases);
      const auto joined = folder.join(mlx(bits, kGroup));
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      ASSERT_EQ(joined->size(), 1u);
      const SourceTensor& t = (*joined)[0];
      EXPECT_EQ(t.shape, (std::vector<int64_t>{kRows, kCols}));
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t k = 0; k < kCols; k += 7) {
          int code = 0;
          for (int bit = 0; bit < bits; ++bit) {
            const int64_t at = r * kCols * bits + k * bits + bit;
            code |= (static_cast<int>(codes.get()[static_cast<size_t>(at / 8)]) >> (at % 8) & 1) << bit;
          }
          const auto g = static_cast<size_t>(r * (kCols / kGroup) + k / kGroup);
          ASSERT_EQ(packed_value(t, r, k), std::fma(s[g], static_cast<float>(code), b[g]))
              << bits << " bits, row " << r << ", column " << k;
        }
      }
    }
  }
}

TEST(HfQuantized, a_layer_may_have_rules_of_its_own) {
  Folder folder;
  folder.zeros("x.weight", "U32", {4, 16})
      .zeros("x.scales", "BF16", {4, 2})
      .zeros("x.biases", "BF16", {4, 2});
  const auto joined = folder.join(mlx(4, 64, R"(, "x": {"bits": 8, "group_size": 32})"));
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_STREQ((*joined)[0].type->name, "MLX8_BF16");
  EXPECT_EQ((*joined)[0].shape[1], 64);
  EXPECT_EQ((*joined)[0].planes->group, 32);
}

TEST(HfQuantized, stacks_of_experts_keep_their_first_dimension) {
  Folder folder;
  folder.zeros("e.weight", "U32", {3, 4, 8})
      .zeros("e.scales", "F16", {3, 4, 1})
      .zeros("e.biases", "F16", {3, 4, 1});
  const auto joined = folder.join(mlx(4, 64));
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_EQ((*joined)[0].shape, (std::vector<int64_t>{3, 4, 64}));
  Folder blocks;
  blocks.zeros("e_blocks", "U8", {3, 4, 2, 16}).zeros("e_scales", "U8", {3, 4, 2});
  const auto mxfp4 = blocks.join(R"({"quantization_config": {"quant_method": "mxfp4"}})");
  ASSERT_TRUE(mxfp4.ok()) << mxfp4.status().message();
  EXPECT_EQ((*mxfp4)[0].name, "e");
  EXPECT_EQ((*mxfp4)[0].shape, (std::vector<int64_t>{3, 4, 64}));
}

TEST(HfQuantized, what_does_not_fit_together_is_named) {
  Folder no_biases;
  no_biases.zeros("a.weight", "U32", {4, 8}).zeros("a.scales", "F16", {4, 1});
  EXPECT_THAT(no_biases.error(mlx(4, 64)), HasSubstr("\"a.biases\" is missing"));
  EXPECT_THAT(no_biases.error(mlx(7, 64)), HasSubstr("with 7 bits"));
  EXPECT_THAT(no_biases.error(mlx(4, 16)), HasSubstr("groups of 16"));
  EXPECT_THAT(no_biases.error(mlx(4, 64, R"(, "mode": "new")")), HasSubstr("mode \"new\""));
  EXPECT_THAT(no_biases.error(mlx(4, 128)), HasSubstr("do not fill"));
  EXPECT_THAT(no_biases.error(mlx(5, 64)), HasSubstr("do not fill"));
  EXPECT_THAT(no_biases.error(mlx(4, -64)), HasSubstr("groups of -64"));
  EXPECT_THAT(no_biases.error(mlx(4, 32)), HasSubstr("wants F16 [4, 2]"));
  EXPECT_THAT(no_biases.error(mlx(4, 32, R"(, "mode": "mxfp4")")), HasSubstr("wants U8 [4, 2]"));
  Folder wide;
  wide.zeros("a.weight", "U32", {4, 8}).zeros("a.scales", "F32", {4, 1}).zeros("a.biases", "F32", {4, 1});
  EXPECT_THAT(wide.error(mlx(4, 64)), HasSubstr("has type F32"));
  Folder empty;
  empty.zeros("a.weight", "U32", {0, 8}).zeros("a.scales", "F16", {0, 1}).zeros("a.biases", "F16", {0, 1});
  EXPECT_THAT(empty.error(mlx(4, 64)), HasSubstr("no matrix"));
}

TEST(HfQuantized, without_quantization_nothing_is_joined) {
  Folder folder;
  folder.zeros("a.weight", "U32", {4, 8}).zeros("a.scales", "F16", {4, 1}).zeros("a.biases", "F16", {4, 1});
  EXPECT_EQ(folder.join("{}")->size(), 3u);
  EXPECT_EQ(folder.join(R"({"quantization_config": {"quant_method": "bnb"}})")->size(), 3u);
}

std::string gptq(const std::string& more = "") {
  return R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32)" + more + "}}";
}

TEST(HfQuantized, gptq_is_checked) {
  const auto folder = [](int32_t last_group, uint8_t zeros) {
    Bytes columns;
    for (int i = 0; i < 64; ++i)
      columns.put<int32_t>(i == 63 ? last_group : i / 32);
    Folder f;
    f.zeros("a.qweight", "I32", {8, 16})
        .zeros("a.scales", "F16", {2, 16})
        .add("a.g_idx", "I32", {64}, columns);
    f.add("a.qzeros", "I32", {2, 2}, Bytes().fill(16, zeros));
    return f;
  };
  const auto type = [](const Folder& f, const std::string& config) {
    const auto joined = f.join(config);
    return joined.ok() ? std::string((*joined)[0].type->name) : joined.status().message();
  };
  EXPECT_EQ(type(folder(1, 0x77), gptq()), "GPTQ4");
  EXPECT_EQ(type(folder(1, 0x77), gptq(R"(, "sym": true)")), "GPTQ4_SYM");
  EXPECT_EQ(type(folder(0, 0x77), gptq()), "GPTQ4_ACT_ORDER");
  EXPECT_THAT(type(folder(2, 0x77), gptq()), HasSubstr("column 63 is in group 2 of 2"));
  EXPECT_THAT(type(folder(-1, 0x77), gptq()), HasSubstr("column 63"));
  // A zero point that the configuration rules out.
  for (const uint8_t zeros : {0x77, 0x76}) {
    const Folder f = folder(1, zeros);
    const auto joined = f.join(gptq(R"(, "sym": true)"));
    const SourceTensor& t = (*joined)[0];
    EXPECT_EQ(t.name, "a.weight");
    std::vector<std::byte> tile(tile_bytes(*t.type->form, 64));
    EXPECT_EQ(pack_tile(*t.type, t.data, 16, 64, {}, 0, tile.data(), t.planes.get()).ok(), zeros == 0x77);
  }
}

TEST(HfQuantized, fp8_is_checked) {
  const std::string config =
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 32]}})";
  Bytes codes;
  codes.fill(20 * 64 - 1, 0x38).put<uint8_t>(0x7F);  // ones, and a NaN in the last row
  Bytes scales;
  for (int i = 0; i < 4; ++i)
    scales.put(0.5f * static_cast<float>(i + 1));
  Folder folder;
  folder.add("a.weight", "F8_E4M3", {20, 64}, codes).add("a.weight_scale_inv", "F32", {2, 2}, scales);
  const auto joined = folder.join(config);
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  const SourceTensor& t = (*joined)[0];
  std::vector<float> tile(16 * 64);
  auto* out = reinterpret_cast<std::byte*>(tile.data());
  ASSERT_TRUE(pack_tile(*t.type, t.data, 20, 64, {}, 0, out, t.planes.get()).ok());
  EXPECT_EQ(tile[0], 0.5f);
  EXPECT_EQ(tile[40 * 16 + 15], 1.0f);
  EXPECT_THAT(pack_tile(*t.type, t.data, 20, 64, {}, 1, out, t.planes.get()).message(),
              HasSubstr("row 19, column 63"));
  Folder wrong;
  wrong.zeros("a.weight", "F8_E4M3", {20, 64}).zeros("a.weight_scale_inv", "F32", {1, 2});
  EXPECT_THAT(wrong.error(config), HasSubstr("wants F32 [2, 2]"));
  EXPECT_THAT(wrong.error(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1]}})"),
              HasSubstr("weight_block_size"));
}

}  // namespace
}  // namespace invar
