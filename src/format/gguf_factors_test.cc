#include "format/gguf_factors.h"

#include <gmock/gmock.h>

#include <deque>

#include "format/pack.h"
#include "format/source_planes.h"
#include "format/test_files.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

// Tensors of zeros, and of numbers that ascend from 1.
class Tensors {
 public:
  Tensors& zeros(const std::string& name, const char* type, std::vector<int64_t> shape) {
    const WeightType& t = *weight_type_by_name(type);
    int64_t n = t.block_bytes;
    for (const int64_t d : shape)
      n *= d;
    return add(name, t, std::move(shape), Bytes().fill(static_cast<size_t>(n / t.block), 0));
  }
  Tensors& numbers(const std::string& name, int n) {
    Bytes b;
    for (int i = 0; i < n; ++i)
      b.put(static_cast<float>(i + 1));
    return add(name, *weight_type_by_name("F32"), {n}, b);
  }
  Result<std::vector<SourceTensor>> join(const char* architecture = "llama") const {
    return join_gguf_factors(architecture, tensors_);
  }

 private:
  Tensors& add(const std::string& name, const WeightType& type, std::vector<int64_t> shape, Bytes data) {
    bytes_.push_back(std::move(data.get()));
    tensors_.push_back({name, name, &type, std::move(shape), bytes_.back()});
    return *this;
  }
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<SourceTensor> tensors_;
};

TEST(GgufFactors, belong_to_the_matrix_of_their_name) {
  Tensors tensors;
  tensors.zeros("blk.0.attn_q.weight", "NVFP4", {32, 64})
      .zeros("blk.0.attn_k.weight", "NVFP4", {32, 64})
      .zeros("blk.0.ffn_up_exps.weight", "NVFP4", {3, 16, 64})
      .zeros("blk.0.ffn_gate_inp.weight", "F32", {3, 64})
      .numbers("blk.0.attn_q.scale", 1)
      .numbers("blk.0.attn_q.input_scale", 1)
      .numbers("blk.0.ffn_up_exps.scale", 3)
      .numbers("blk.0.ffn_gate_inp.scale", 3);
  const auto joined = tensors.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_EQ(joined->size(), 5u);
  EXPECT_STREQ((*joined)[0].type->name, "NVFP4_SCALED");
  EXPECT_STREQ((*joined)[1].type->name, "NVFP4");
  EXPECT_EQ((*joined)[4].stored_name, "blk.0.ffn_gate_inp.scale");
  const SourcePlanes& stack = *(*joined)[2].planes;
  for (const int64_t row : {0, 15, 16, 47})
    EXPECT_EQ(stack.factor(row), static_cast<float>(row / 16 + 1));
}

TEST(GgufFactors, factors_of_another_size_are_an_error) {
  Tensors tensors;
  tensors.zeros("blk.0.attn_q.weight", "NVFP4", {32, 64}).numbers("blk.0.attn_q.scale", 2);
  EXPECT_THAT(tensors.join().status().message(), HasSubstr("\"blk.0.attn_q.scale\" has 2 values"));
  Tensors half;
  half.zeros("blk.0.attn_q.weight", "NVFP4", {32, 64}).zeros("blk.0.attn_q.scale", "F16", {2});
  EXPECT_THAT(half.join().status().message(), HasSubstr("F32"));
}

TEST(GgufFactors, gemma4_keeps_the_factors_of_its_experts) {
  Tensors tensors;
  tensors.zeros("blk.0.ffn_down_exps.weight", "NVFP4", {3, 16, 64}).numbers("blk.0.ffn_down_exps.scale", 3);
  EXPECT_EQ(tensors.join("gemma4")->size(), 2u);
  EXPECT_EQ(tensors.join("qwen3moe")->size(), 1u);
}

// The same blocks with and without planes, in every cut of a row.
TEST(GgufFactors, blocks_are_those_of_nvfp4) {
  Tensors tensors;
  tensors.zeros("a.weight", "NVFP4", {5, 320}).numbers("a.scale", 1);
  auto joined = tensors.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  SourceTensor& t = (*joined)[0];
  auto* bytes = const_cast<std::byte*>(t.data.data());
  for (size_t i = 0; i < t.data.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 37 % 127);
  const WeightType& plain = *weight_type_by_name("NVFP4");
  std::vector<std::byte> want(tile_bytes(*plain.form, 320)), got(tile_bytes(*t.type->form, 320));
  ASSERT_TRUE(pack_tile(plain, t.data, 5, 320, {}, 0, want.data()).ok());
  ASSERT_TRUE(pack_tile(*t.type, t.data, 5, 320, {}, 0, got.data(), t.planes.get()).ok());
  float factors[16];
  std::memcpy(factors, got.data() + want.size(), sizeof factors);
  got.resize(want.size());
  EXPECT_EQ(got, want);
  for (int c = 0; c < 16; ++c)
    EXPECT_EQ(factors[c], c < 5 ? 1.0f : 0.0f);
}

}  // namespace
}  // namespace invar
