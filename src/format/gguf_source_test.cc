#include <gmock/gmock.h>

#include <filesystem>

#include "format/gguf.h"
#include "format/model_source.h"
#include "format/test_files.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

// m-00001-of-00003.gguf and so on, a tensor each; only the first has metadata.
class SplitGguf : public testing::Test {
 protected:
  SplitGguf() {
    for (int i = 0; i < 3; ++i)
      write_part(i, 3, 3);
  }
  std::string name(int part) const { return "m-0000" + std::to_string(part + 1) + "-of-00003.gguf"; }
  void write_part(int part, int count, int tensors) {
    GgufWriter w;
    w.key("split.no", 2, Bytes().put<uint16_t>(static_cast<uint16_t>(part)));
    w.key("split.count", 2, Bytes().put<uint16_t>(static_cast<uint16_t>(count)));
    w.key("split.tensors.count", 5, Bytes().put<int32_t>(tensors));
    if (part == 0) w.string("general.architecture", "llama");
    w.tensor("blk." + std::to_string(part) + ".attn_norm.weight", {4}, 0,
             Bytes().fill(16, static_cast<uint8_t>(part)));
    write_file(folder_.path(name(part)), w.build());
  }
  std::string error(int part = 0) const {
    const auto source = ModelSource::open(folder_.path(name(part)));
    return source.ok() ? "ok" : source.status().message();
  }
  const TemporaryFolder folder_;
};

TEST_F(SplitGguf, any_part_opens_the_whole_model) {
  for (int part = 0; part < 3; ++part) {
    const auto source = ModelSource::open(folder_.path(name(part)));
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ((*source)->path(), folder_.path(name(0)));
    EXPECT_EQ((*source)->architecture(), "llama");
    EXPECT_EQ((*source)->files().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const SourceTensor* t =
          (*source)->find("model.layers." + std::to_string(i) + ".input_layernorm.weight");
      ASSERT_NE(t, nullptr);
      (*source)->drop_tensor_pages(t->data);
      EXPECT_EQ(t->data[0], static_cast<std::byte>(i));
    }
  }
}

TEST_F(SplitGguf, every_part_counts_for_the_identity) {
  const std::string before = (*ModelSource::open(folder_.path(name(0))))->identity();
  auto bytes = read_file(folder_.path(name(2)));
  bytes.back() ^= std::byte{1};
  write_file(folder_.path(name(2)), bytes);
  EXPECT_NE((*ModelSource::open(folder_.path(name(0))))->identity(), before);
}

TEST_F(SplitGguf, a_missing_part_is_named) {
  std::filesystem::remove(folder_.path(name(1)));
  for (const int part : {0, 2})
    EXPECT_THAT(error(part), HasSubstr("m-00002-of-00003.gguf is missing, one of the 3 files"));
}

TEST_F(SplitGguf, parts_of_another_model_are_refused) {
  write_part(1, 2, 3);
  EXPECT_THAT(error(), HasSubstr("split.count is 2, not 3"));
  std::filesystem::copy(folder_.path(name(2)), folder_.path(name(1)),
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("split.no is 2, not 1"));
  write_file(folder_.path(name(1)), GgufWriter().build());
  EXPECT_THAT(error(), HasSubstr("split.no is missing"));
}

TEST_F(SplitGguf, counts_and_names_are_checked) {
  for (int i = 0; i < 3; ++i)
    write_part(i, 3, 7);
  EXPECT_THAT(error(), HasSubstr("split.tensors.count is 7, but the 3 files hold 3"));
  std::filesystem::copy(folder_.path(name(0)), folder_.path("m.gguf"));
  EXPECT_THAT(ModelSource::open(folder_.path("m.gguf")).status().message(), HasSubstr("split over 3 files"));
  write_file(folder_.path(name(0)),
             GgufWriter().key("split.count", 10, Bytes().put<uint64_t>(1ull << 40)).build());
  EXPECT_THAT(error(), HasSubstr("more than 10000"));
}

}  // namespace
}  // namespace invar
