#include "format/model_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/hash.h"
#include "format/test_files.h"

namespace invar {
namespace {

class Files : public ModelSource {
 public:
  explicit Files(std::vector<std::string> files) : files_(std::move(files)) {}
  SourceKind kind() const override { return SourceKind::kGguf; }
  const std::string& path() const override { return files_[0]; }
  std::string architecture() const override { return ""; }
  Result<std::string> side_file(const std::string&) const override { return not_found("none"); }
  std::vector<std::string> files() const override { return files_; }
  std::string identity() const override { return ""; }
  void drop_tensor_pages(std::span<const std::byte>) const override {}

 private:
  std::vector<std::string> files_;
};

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// sha256sum's own answers.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(ModelDigest, of_one_file_is_its_sha256) {
  const TemporaryFolder folder;
  write(folder.path("m"), "abc");
  EXPECT_EQ(*model_digest(Files({folder.path("m")}), ""), kAbc);
}

TEST(ModelDigest, of_several_files_is_that_of_what_sha256sum_prints) {
  const TemporaryFolder folder;
  write(folder.path("config.json"), "abc");
  write(folder.path("model.safetensors"), "abc");
  const std::string printed = std::string(kAbc) + "  config.json\n" + kAbc + "  model.safetensors\n";
  EXPECT_EQ(*model_digest(Files({folder.path("config.json"), folder.path("model.safetensors")}), ""),
            hex(sha256(printed)));
}

TEST(ModelDigest, of_a_changed_model_is_that_of_a_line) {
  EXPECT_EQ(changed_digest(kAbc, "quantized to Q4_K"),
            hex(sha256(std::string(kAbc) + "  quantized to Q4_K\n")));
}

TEST(ModelDigest, of_a_missing_file_is_an_error_that_names_it) {
  const auto digest = model_digest(Files({"/nowhere/m"}), "");
  ASSERT_FALSE(digest.ok());
  EXPECT_NE(digest.status().message().find("/nowhere/m"), std::string::npos);
}

TEST(ModelDigest, of_a_large_file_is_kept_until_the_file_changes) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m"), cache = folder.path("cache");
  write(path, std::string(33 << 20, 'a'));
  const std::string first = *model_digest(Files({path}), cache);
  EXPECT_EQ(first, hex(*sha256_file(path)));

  const auto kept = std::filesystem::directory_iterator(cache + "/digests");
  const std::string entry = kept->path();
  write(entry, kAbc);
  EXPECT_EQ(*model_digest(Files({path}), cache), kAbc) << "the kept one is read, not the file";
  write(entry, "no digest");
  EXPECT_EQ(*model_digest(Files({path}), cache), first) << "what is no digest is not believed";

  write(path, std::string(33 << 20, 'b'));
  EXPECT_EQ(*model_digest(Files({path}), cache), hex(*sha256_file(path)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache + "/digests"), {}), 2);
}

}  // namespace
}  // namespace invar
