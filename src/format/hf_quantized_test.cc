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

TEST(HfQuantized, keys_of_another_type_are_named_and_not_absent) {
  const Folder none;
  const auto error = [&](const std::string& how) { return none.error("{" + how + "}"); };
  for (const char* key : {"bits", "group_size"})
    for (const char* wrong : {"\"x\"", "1.5", "[4]", "true"})
      for (const char* method : {"", "\"quant_method\": \"gptq\", ", "\"quant_method\": \"awq\", "})
        EXPECT_THAT(
            error(fmt::format("\"quantization_config\": {{{}\"{}\": {}}}", method, key, wrong)),
            HasSubstr(fmt::format("config.json: \"{}\" of the quantization should be an integer", key)));
  EXPECT_THAT(error(R"("quantization": {"mode": 0})"),
              HasSubstr("\"mode\" of the quantization should be a string"));
  EXPECT_THAT(error(R"("quantization": {"a.b": {"bits": "x"}})"), HasSubstr("\"bits\" of the quantization"));
  EXPECT_EQ(error(R"("quantization": {"bits": null, "a.b": false})"), "ok");
  EXPECT_THAT(error(R"("quantization_config": {"quant_method": "gptq", "sym": "x"})"),
              HasSubstr("\"sym\" of the quantization should be true or false"));
  EXPECT_THAT(error(R"("quantization_config": {"quant_method": 3})"), HasSubstr("\"quant_method\""));
  EXPECT_THAT(error(R"("quantization_config": "gptq")"),
              HasSubstr("\"quantization_config\" should be an object"));
}

TEST(HfQuantized, two_descriptions_agree) {
  const Folder none;
  EXPECT_EQ(none.error(R"({"quantization": {"bits": 4, "group_size": 64, "l": {"bits": 8}},
                          "quantization_config": {"group_size": 64, "bits": 4, "l": {"bits": 8}}})"),
            "ok");
  EXPECT_THAT(none.error(R"({"quantization": {"bits": 4}, "quantization_config": {"bits": 8}})"),
              HasSubstr("differ; drop the one"));
  EXPECT_THAT(none.error(R"({"quantization": {"l": [1, 2]}, "quantization_config": {"l": [1, 3]}})"),
              HasSubstr("differ"));
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
  // Columns 0 and 63 are in the groups that are given.
  const auto folder = [](int32_t last_group, uint8_t zeros, int32_t first_group = 0) {
    Bytes columns;
    for (int i = 0; i < 64; ++i)
      columns.put<int32_t>(i == 63 ? last_group : i == 0 ? first_group : i / 32);
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
  EXPECT_EQ(type(folder(0, 0x77, 1), gptq()), "GPTQ4_ACT_ORDER");
  EXPECT_EQ(type(folder(0, 0x77, 1), gptq(R"(, "sym": true)")), "GPTQ4_SYM_ACT_ORDER");
  EXPECT_THAT(type(folder(0, 0x77), gptq()), HasSubstr("33 columns in group 0, no multiple of 32"));
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
  EXPECT_STREQ(t.type->name, "FP8_E4M3_G32");
  std::vector<std::byte> tile(tile_bytes(*t.type->form, 64));
  ASSERT_TRUE(pack_tile(*t.type, t.data, 20, 64, {}, 0, tile.data(), t.planes.get()).ok());
  const auto scale_at = [&](size_t record, size_t channel) {
    float scale;
    std::memcpy(&scale, tile.data() + record * (64 + 32 * 16) + 4 * channel, 4);
    return scale / 256;
  };
  EXPECT_EQ(scale_at(0, 0), 0.5f);
  EXPECT_EQ(scale_at(1, 15), 1.0f);
  EXPECT_EQ(tile[64 + 31 * 16 + 15], std::byte{0x38});
  EXPECT_THAT(pack_tile(*t.type, t.data, 20, 64, {}, 1, tile.data(), t.planes.get()).message(),
              HasSubstr("row 19, column 63"));
  Folder huge;
  huge.zeros("a.weight", "F8_E4M3", {20, 64}).add("a.weight_scale_inv", "F32", {1, 1}, Bytes().put(0x1p64f));
  const auto large = huge.join(R"({"quantization_config": {"quant_method": "fp8"}})");
  ASSERT_TRUE(large.ok()) << large.status().message();
  EXPECT_STREQ((*large)[0].type->name, "FP8_E4M3");
  EXPECT_THAT(
      pack_tile(*(*large)[0].type, (*large)[0].data, 20, 64, {}, 0, tile.data(), (*large)[0].planes.get())
          .message(),
      HasSubstr("row 0, column 0: a scale is not finite or too large"));
  Folder wrong;
  wrong.zeros("a.weight", "F8_E4M3", {20, 64}).zeros("a.weight_scale_inv", "F32", {1, 2});
  EXPECT_THAT(wrong.error(config), HasSubstr("wants F32 [2, 2]"));
  EXPECT_THAT(wrong.error(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1]}})"),
              HasSubstr("weight_block_size"));
  Folder odd;
  odd.zeros("a.weight", "F8_E4M3", {20, 64}).zeros("a.weight_scale_inv", "F32", {1, 2});
  EXPECT_THAT(odd.error(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [20, 48]}})"),
              HasSubstr("blocks of 48 columns"));
}

TEST(HfQuantized, fp8_of_compressed_tensors_has_a_scale_per_row_block_or_matrix) {
  const std::string config =
      R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups":
      {"group_0": {"weights": {"block_structure": [10, 32]}}}}})";
  const auto joined = [&](std::vector<int64_t> shape) {
    Folder folder;
    folder.zeros("a.weight", "F8_E4M3", {20, 64})
        .zeros("a.weight_scale", "BF16", std::move(shape))
        .zeros("a.input_scale", "F32", {1});
    auto tensors = folder.join(config);
    EXPECT_TRUE(tensors.ok()) << tensors.status().message();
    EXPECT_EQ(tensors->size(), 1u);
    return *(*tensors)[0].planes;
  };
  EXPECT_EQ(joined({20, 1}).group_rows, 1);
  EXPECT_EQ(joined({20, 1}).group, 64);
  EXPECT_EQ(joined({1}).group_rows, 20);
  EXPECT_EQ(joined({2, 2}).group_rows, 10);
  EXPECT_EQ(joined({2, 2}).group, 32);
}

// Every way in which a global factor is stored.
TEST(HfQuantized, nvfp4_has_a_factor) {
  const auto factor = [](const Folder& folder, const std::string& config) {
    const auto joined = folder.join(config);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
    EXPECT_EQ(joined->size(), 1u);
    const SourceTensor& t = (*joined)[0];
    EXPECT_EQ(t.name, "a.weight");
    EXPECT_EQ(t.shape, (std::vector<int64_t>{4, 64}));
    std::vector<float> tile(tile_bytes(*t.type->form, 64) / 4);
    auto* out = reinterpret_cast<std::byte*>(tile.data());
    EXPECT_TRUE(pack_tile(*t.type, t.data, 4, 64, {}, 0, out, t.planes.get()).ok());
    EXPECT_EQ(tile[tile.size() - 12], 0.0f);  // a channel that there is not
    return tile[tile.size() - 13];
  };
  const auto number = [](float x) { return Bytes().put(x); };
  Folder mlx_folder;
  mlx_folder.zeros("a.weight", "U32", {4, 8})
      .zeros("a.scales", "U8", {4, 4})
      .add("a.global_scale", "F32", {1}, number(2688 * 3.0f));
  EXPECT_EQ(factor(mlx_folder, mlx(4, 16, R"(, "mode": "nvfp4")")), 3.0f);
  const auto other = [&](const char* codes, const char* global, float value) {
    Folder f;
    f.zeros(codes, "U8", {4, 32})
        .zeros("a.weight_scale", "F8_E4M3", {4, 4})
        .add(global, "F32", {}, number(value))
        .zeros("a.input_scale", "F32", {});
    return f;
  };
  const std::string modelopt = R"({"quantization_config": {"quant_method": "modelopt"}})";
  const std::string compressed = R"({"quantization_config": {"quant_method": "compressed-tensors"}})";
  EXPECT_EQ(factor(other("a.weight", "a.weight_scale_2", 0.3f), modelopt), 0.3f);
  EXPECT_EQ(factor(other("a.weight_packed", "a.weight_global_scale", 3.0f), compressed), 1.0f / 3.0f);
  const Folder zero = other("a.weight_packed", "a.weight_global_scale", 0.0f);
  const auto joined = zero.join(compressed);
  const SourceTensor& t = (*joined)[0];
  std::vector<std::byte> tile(tile_bytes(*t.type->form, 64));
  EXPECT_THAT(pack_tile(*t.type, t.data, 4, 64, {}, 0, tile.data(), t.planes.get()).message(),
              HasSubstr("row 0: its factor is not finite"));
  Folder other_format;
  other_format.zeros("a.weight_packed", "I32", {4, 8}).zeros("a.weight_scale", "BF16", {4, 1});
  EXPECT_THAT(other_format.error(compressed), HasSubstr("nvfp4-pack-quantized"));
  Folder two;
  two.zeros("a.weight_packed", "U8", {4, 32})
      .zeros("a.weight_scale", "F8_E4M3", {4, 4})
      .zeros("a.weight_global_scale", "F32", {2});
  EXPECT_THAT(two.error(compressed), HasSubstr("one factor in F32"));
}

TEST(HfQuantized, act_order_packs_columns_group_by_group) {
  std::mt19937 rng(4);
  constexpr int64_t kRows = 8, kCols = 96;
  Bytes columns, scales;
  std::vector<int> group(kCols);
  for (int k = 0; k < kCols; ++k)
    group[static_cast<size_t>(k)] = k % 3;
  std::shuffle(group.begin(), group.end(), rng);
  for (const int g : group)
    columns.put<int32_t>(g);
  for (int i = 0; i < 3 * kRows; ++i)
    scales.put(f32_to_f16(static_cast<float>(1 + i)));
  const Bytes codes = random_bytes(kRows * kCols / 2, rng);
  Folder folder;
  folder.add("a.qweight", "I32", {kCols / 8, kRows}, codes)
      .add("a.qzeros", "I32", {3, kRows / 8}, Bytes().fill(12, 0x77))
      .add("a.scales", "F16", {3, kRows}, scales)
      .add("a.g_idx", "I32", {kCols}, columns);
  const auto joined = folder.join(gptq());
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  const SourceTensor& t = (*joined)[0];
  const std::vector<int32_t>& order = t.planes->order;
  ASSERT_EQ(order.size(), size_t{kCols});
  for (size_t k = 0; k < kCols; ++k) {
    const auto from = static_cast<size_t>(order[k]);
    EXPECT_EQ(group[from], static_cast<int>(k / 32));
    if (k % 32 > 0) EXPECT_LT(order[k - 1], order[k]);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto byte =
          static_cast<int>(codes.get()[(from / 8 * kRows + static_cast<size_t>(r)) * 4 + from % 8 / 2]);
      const int code = byte >> (from % 2 * 4) & 15;
      const auto scale = static_cast<float>(1 + group[from] * kRows + r);
      ASSERT_EQ(packed_value(t, r, static_cast<int64_t>(k)), scale * static_cast<float>(code - 8)) << k;
    }
  }
}

}  // namespace
}  // namespace invar
