// Packed models: one file gives every bit of the model it was made from, says the same about it, and is
// refused when it is not whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/hash.h"
#include "cli/sampling_defaults.h"
#include "cli/text_setup.h"
#include "format/model_digest.h"
#include "format/packed_source.h"
#include "format/test_files.h"
#include "golden.h"
#include "made_models.h"
#include "model_runner.h"
#include "models/packed_model.h"
#include "oracle_models.h"

namespace invar {
namespace {

using testing::HasSubstr;

std::string source_path(const std::string& name) {
  static MadeModels made(oracle_path(""));
  return name.starts_with("made/") ? made.path(name.substr(5)) : oracle_path(name);
}

Result<uint64_t> write_packed(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::open(from));
  return write_packed_model(*source, to, {.cache_dir = "", .threads = 2, .progress = false});
}

std::vector<std::string> all_models() {
  std::vector<std::string> names;
  for (const OracleModel& m : kOracleModels)
    names.emplace_back(m.path);
  namespace fs = std::filesystem;
  for (const char* folder : {"gguf/quant", "mlx", "quantized"})
    for (const auto& entry : fs::directory_iterator(oracle_path(folder)))
      if (entry.is_directory() || entry.path().extension() == ".gguf")
        names.push_back(std::string(folder) + "/" + entry.path().filename().string());
  names.emplace_back("models/gpt-oss-mxfp4");
  std::sort(names.begin(), names.end());
  return names;
}

class PackedModel : public testing::TestWithParam<std::string> {};

TEST_P(PackedModel, is_the_source_to_every_bit) {
  const TemporaryFolder folder;
  const std::string from = source_path(GetParam()), to = folder.path("model.packed");
  const auto written = write_packed(from, to);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(*written, std::filesystem::file_size(to));
  EXPECT_TRUE(same_bits(logits_of(from), logits_of(to)));

  const auto a = ModelSource::open(from), b = ModelSource::open(to);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_NE((*b)->packed(), nullptr);
  EXPECT_EQ(*model_digest(**a, ""), *model_digest(**b, ""));
  EXPECT_EQ((*a)->identity(), (*b)->identity());
  EXPECT_EQ((*a)->name(), (*b)->name());
  EXPECT_EQ((*a)->architecture(), (*b)->architecture());
  const SamplingDefaults x = sampling_defaults(**a), y = sampling_defaults(**b);
  EXPECT_EQ(x.taken, y.taken);
  const auto text = set_up_text(**a), packed_text = set_up_text(**b);
  ASSERT_EQ(text.ok(), packed_text.ok());
  if (!text.ok()) return;
  EXPECT_EQ(text->stop_ids, packed_text->stop_ids);
  EXPECT_EQ(*encode_raw(*text, "Hello 123,  w\u00f6rld"),
            *encode_raw(*packed_text, "Hello 123,  w\u00f6rld"));
  EXPECT_EQ(text->chat_template != nullptr, packed_text->chat_template != nullptr);
}

INSTANTIATE_TEST_SUITE_P(Models, PackedModel, testing::ValuesIn(all_models()),
                         [](const auto& info) { return oracle_test_name(info.param); });

// A folder whose answers have two ends and defaults of their own.
TEST(PackedModel, ends_of_answers_and_sampling_go_along) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  fs::copy(oracle_path("models/llama-untied"), folder.path("source"));
  write_file(folder.path("source/generation_config.json"),
             std::string_view(R"({"eos_token_id": [7, 9], "temperature": 0.25, "top_k": 12})"));
  write_file(folder.path("source/chat_template.jinja"), std::string_view("{{ messages[0].content }}!"));
  ASSERT_TRUE(write_packed(folder.path("source"), folder.path("m.packed")).ok());
  fs::remove_all(folder.path("source"));
  const auto source = ModelSource::open(folder.path("m.packed"));
  ASSERT_TRUE(source.ok());
  const auto text = set_up_text(**source);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(text->stop_ids, testing::IsSupersetOf({7, 9}));
  EXPECT_NE(text->chat_template, nullptr);
  EXPECT_THAT(sampling_defaults(**source).taken, HasSubstr("0.25"));
}

class DamagedModel : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_packed(oracle_path("models/llama-untied"), path_).ok());
    bytes_ = read_file(path_);
  }
  std::string refusal(std::vector<std::byte> bytes) {
    write_file(path_, bytes);
    const auto model = Model::load(path_, {});
    return model.ok() ? "was opened" : model.status().message();
  }
  std::string changed(size_t at, uint8_t value) {
    auto bytes = bytes_;
    bytes[at] = std::byte{value};
    return refusal(std::move(bytes));
  }
  // The record with other bytes and the checksum that belongs to them.
  std::string forged(size_t at, std::span<const std::byte> with) {
    auto bytes = bytes_;
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + 24, 8);
    std::copy(with.begin(), with.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    const uint64_t hash = hash64(std::span(bytes).subspan(40, size));
    std::memcpy(bytes.data() + 32, &hash, 8);
    return refusal(std::move(bytes));
  }
  size_t find(std::string_view text) const {
    const auto needle = std::as_bytes(std::span(text));
    return static_cast<size_t>(std::search(bytes_.begin(), bytes_.end(), needle.begin(), needle.end()) -
                               bytes_.begin());
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path("m.packed");
  std::vector<std::byte> bytes_;
};

TEST_F(DamagedModel, is_refused_by_what_is_wrong) {
  EXPECT_EQ(refusal(bytes_), "was opened");
  EXPECT_THAT(changed(8, 0), HasSubstr("packed by an older version of Invar (record 0"));
  EXPECT_THAT(changed(12, 250), HasSubstr("packed by a newer version of Invar (layout 250"));
  EXPECT_THAT(changed(16, 0), HasSubstr("numerics 0"));
  EXPECT_THAT(changed(60, 255), HasSubstr("does not have its checksum"));
  EXPECT_THAT(changed(bytes_.size() - 100, uint8_t(bytes_[bytes_.size() - 100]) ^ 1),
              HasSubstr("is damaged"));
  for (const size_t size : {size_t{6}, size_t{39}, size_t{500}})
    EXPECT_THAT(refusal({bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size)}),
                HasSubstr("truncated"));
  EXPECT_THAT(refusal({bytes_.begin(), bytes_.end() - 64}), HasSubstr("has the wrong size"));
  auto longer = bytes_;
  longer.resize(longer.size() + 64);
  EXPECT_THAT(refusal(longer), HasSubstr("convert its source again"));
}

TEST_F(DamagedModel, a_record_that_lies_is_refused) {
  const std::byte huge[8] = {std::byte{255}, std::byte{255}, std::byte{255}, std::byte{255},
                             std::byte{255}, std::byte{255}, std::byte{255}, std::byte{127}};
  EXPECT_THAT(forged(44, std::span(huge).first(4)), HasSubstr("the name has"));
  const size_t tensor = find("model.norm.weight");
  ASSERT_LT(tensor, bytes_.size());
  EXPECT_THAT(forged(tensor - 4, std::span(huge).first(4)), HasSubstr("a tensor's name has"));
  // name, length, stored name, length, type (4 bytes: "BF16"), dimensions, the first of them
  const size_t type = tensor + 2 * std::strlen("model.norm.weight") + 4 + 4;
  EXPECT_THAT(forged(type, std::as_bytes(std::span("QQQQ", 4))), HasSubstr("unknown type \"QQQQ\""));
  EXPECT_THAT(forged(type + 4, std::span(huge).first(4)), HasSubstr("dimensions"));
  EXPECT_THAT(forged(type + 8, huge), HasSubstr("beyond all files"));
  EXPECT_THAT(forged(type + 16, huge),
              testing::AllOf(HasSubstr("the record ends within"), HasSubstr("; check --model")));
}

TEST_F(DamagedModel, another_record_before_the_same_weights_is_refused) {
  const size_t number = find("\"rope_theta\"") + std::strlen("\"rope_theta\": ");
  ASSERT_LT(number, bytes_.size());
  const std::byte other = bytes_[number] == std::byte{'5'} ? std::byte{'6'} : std::byte{'5'};
  EXPECT_THAT(forged(number, std::span(&other, 1)), HasSubstr("was made from another model file"));
  uint64_t size = 0;
  std::memcpy(&size, bytes_.data() + 24, 8);
  ASSERT_NE((40 + size) % 4096, 0u);
  EXPECT_THAT(changed(40 + size, 1), HasSubstr("was made from another model file"));  // behind the record
}

TEST_F(DamagedModel, what_needs_the_source_is_refused) {
  const auto source = ModelSource::open(path_);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(write_packed_model(**source, folder_.path("again.packed"), {}).status().message(),
              HasSubstr("is packed already"));
  // The copy in a cache has the weights alone.
  const LoadOptions options = {.cache_dir = folder_.path("cache"), .progress = false};
  ASSERT_TRUE(Model::load(oracle_path("models/llama-untied"), options).ok());
  const auto copy = std::filesystem::directory_iterator(folder_.path("cache/packed"))->path();
  EXPECT_THAT(Model::load(copy, {}).status().message(), HasSubstr("need their source"));
}

}  // namespace
}  // namespace invar
