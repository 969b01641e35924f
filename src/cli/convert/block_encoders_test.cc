#include "cli/convert/block_encoders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"

namespace invar {
namespace {

std::vector<float> stored_floats(const std::string& name) {
  std::ifstream in(std::string(INVAR_TEST_DATA) + "/blocks/" + name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  EXPECT_FALSE(out.empty()) << name;
  return out;
}

std::vector<std::byte> encoded(const char* type, const std::vector<float>& x) {
  const WeightType& t = *weight_type_by_name(type);
  std::vector<std::byte> out(x.size() / size_t(t.block) * size_t(t.block_bytes));
  EXPECT_TRUE(find_encoder(type)->encode(x.data(), int64_t(x.size()), out.data()));
  return out;
}

std::vector<float> decoded(const char* type, const std::vector<std::byte>& bytes, size_t n) {
  std::vector<float> out(n);
  decode_weights(*weight_type_by_name(type), bytes.data(), 0, int64_t(n), out.data());
  return out;
}

std::vector<float> random_weights(size_t n, float scale) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& v : x)
    v = normal(rng);
  return x;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return sum;
}

// SHA-256 of gguf.quants.quantize(x, TYPE).tobytes() of the Python package gguf, x the finite values of the
// file below 1000, + 0.0 (a zero block's sign is an accident), cut to a multiple of 32.
struct Reference {
  const char* file;
  const char* type;
  const char* sha256;
};
constexpr Reference kReferences[] = {
    {"Q6_K.f32", "Q8_0", "6c93e181d0af163bf5c39b7272ae5a09e8b3123df6f2952268eb196c3af8277a"},
    {"Q6_K.f32", "Q4_0", "fb77116574e12cb66e72454146fdc56320bbc21a732562664ec8c6741c80098c"},
    {"Q5_1.f32", "Q8_0", "61a00179e60451d8f40b5193f856742b9f18ee1c27e61ddbbe700d4a8c576fdb"},
    {"Q5_1.f32", "Q4_0", "4904d386f9d320e386c75610d137c0da6a209df4d6844ff84ef8ae986484bbb6"},
    {"Q8_0.f32", "Q8_0", "5dd36c98ac6be778ce057a7e43713c3fe41cbb3627cf77068e5fa64058036dc3"},
    {"Q8_0.f32", "Q4_0", "55e55e0664dc95c0ed801cfc25cb667e3dee93711140fdf0ec9a1a3477d9e62c"},
};

TEST(BlockEncoders, give_the_bytes_of_an_independent_implementation) {
  for (const Reference& r : kReferences) {
    std::vector<float> x;
    for (const float v : stored_floats(r.file))
      if (std::isfinite(v) && std::abs(v) < 1000) x.push_back(v + 0.0f);
    x.resize(x.size() / 32 * 32);
    EXPECT_EQ(hex(sha256(encoded(r.type, x))), r.sha256) << r.file << " " << r.type;
  }
}

// The stored pairs hold blocks and what the package gguf makes of them.
TEST(BlockEncoders, blocks_are_read_as_an_independent_implementation_reads_them) {
  for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    std::ifstream in(std::string(INVAR_TEST_DATA) + "/blocks/" + type + ".blocks", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::vector<float> expected = stored_floats(std::string(type) + ".f32");
    std::vector<float> got(expected.size());
    decode_weights(*weight_type_by_name(type), reinterpret_cast<const std::byte*>(bytes.data()), 0,
                   int64_t(got.size()), got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i]))
        ASSERT_TRUE(std::isnan(got[i])) << type << " " << i;
      else
        ASSERT_EQ(got[i], expected[i]) << type << " " << i;
    }
  }
}

TEST(BlockEncoders, what_a_type_can_hold_comes_back_as_it_was) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0"}) {
    const std::vector<float> once = decoded(type, encoded(type, random_weights(4096, 0.05f)), 4096);
    if (std::string(type).starts_with("Q")) {
      // A block's largest weight pins its scale, up to the rounding of the scale itself.
      const std::vector<float> twice = decoded(type, encoded(type, once), 4096);
      EXPECT_LT(squared_error(once, twice), 1e-6 * squared_error(once, std::vector<float>(4096))) << type;
    } else {
      EXPECT_EQ(decoded(type, encoded(type, once), 4096), once) << type;
    }
  }
}

TEST(BlockEncoders, q4_k_is_closer_than_plain_grids) {
  const std::vector<float> x = random_weights(1 << 16, 0.02f);
  const double energy = squared_error(x, std::vector<float>(x.size()));
  const double k = squared_error(x, decoded("Q4_K", encoded("Q4_K", x), x.size())) / energy;
  const double plain = squared_error(x, decoded("Q4_0", encoded("Q4_0", x), x.size())) / energy;
  EXPECT_LT(k, 0.0065);  // of normal numbers, measured 0.0055
  EXPECT_LT(k, 0.75 * plain);
}

TEST(BlockEncoders, hostile_blocks_neither_crash_nor_give_more_than_they_hold) {
  const float huge = 3e38f, tiny = std::numeric_limits<float>::denorm_min();
  for (const BlockEncoder& e : block_encoders()) {
    const WeightType& t = *weight_type_by_name(e.type);
    std::vector<std::byte> out(size_t(256 / t.block * t.block_bytes));
    for (const float v : {0.0f, -0.0f, tiny, -tiny, 1e-38f, 1.0f, -1.0f, 65504.0f}) {
      ASSERT_TRUE(e.encode(std::vector<float>(256, v).data(), 256, out.data())) << e.type << " " << v;
      const auto back = decoded(e.type, out, 256);
      for (const float b : back)
        ASSERT_LE(std::abs(b - v), 0.02f * std::abs(v) + 1e-6f) << e.type << " " << v;
    }
    std::vector<float> mixed(256, huge);
    for (size_t i = 0; i < 256; i += 3)
      mixed[i] = -huge;
    const bool holds = std::string(e.type) == "F32" || std::string(e.type) == "BF16";
    EXPECT_EQ(e.encode(mixed.data(), 256, out.data()), holds) << e.type;
  }
}

}  // namespace
}  // namespace invar
