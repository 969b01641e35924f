#include "format/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "format/allocation_probe.h"
#include "format/model_source.h"
#include "format/test_files.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes = 64) {
  return Bytes().string(header).fill(data_bytes, 0x5A).get();
}

std::string entry(const std::string& dtype, const std::string& shape, size_t begin, size_t end) {
  return fmt::format(R"({{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})", dtype, shape, begin, end);
}

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto file = SafetensorsFile::parse(bytes, "m.safetensors");
  return file.ok() ? "ok" : file.status().message();
}
std::string error_of(const std::string& header) {
  return error_of(file_of(header));
}

const std::string kGood = R"({"__metadata__": {"format": "pt"}, "a": )" + entry("F32", "[2, 3]", 0, 24) +
                          R"(, "b": )" + entry("BF16", "[4]", 24, 32) + R"(, "c": )" +
                          entry("F16", "[]", 32, 34) + R"(, "z": )" + entry("F32", "[0]", 0, 0) + "}";

TEST(Safetensors, reads_names_types_shapes_and_bytes) {
  const auto bytes = file_of(kGood);
  const auto file = SafetensorsFile::parse(bytes, "m.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_STREQ(file->tensors()[0].type->name, "F32");
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->tensors()[0].data.data(), bytes.data() + file->header_bytes());
  EXPECT_EQ(file->tensors()[1].data.size(), 8u);
  EXPECT_TRUE(file->tensors()[2].shape.empty());
  EXPECT_TRUE(file->tensors()[3].data.empty());
}

TEST(Safetensors, faults_are_named) {
  const auto one = [](const std::string& e) { return error_of("{\"t\": " + e + "}"); };
  EXPECT_THAT(one(entry("F32", "[3]", 0, 8)),
              HasSubstr("tensor \"t\" has 8 bytes, but its dtype and shape need 12"));
  EXPECT_THAT(one(entry("F31", "[2]", 0, 8)), HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(one(entry("Q4_0", "[32]", 0, 18)), HasSubstr("unknown dtype"));
  EXPECT_THAT(one(entry("F32", "[20]", 0, 80)), HasSubstr("beyond the file"));
  EXPECT_THAT(one(entry("F32", "[2]", 8, 0)), HasSubstr("ascending"));
  EXPECT_EQ(one(entry("F32", "[1]", 2, 6)), "ok");  // the format asks for no alignment
  EXPECT_THAT(one(entry("F32", "[-1]", 0, 4)), HasSubstr("shape"));
  EXPECT_THAT(one(entry("F32", "[1.5]", 0, 4)), HasSubstr("shape"));
  EXPECT_THAT(one(entry("F32", "[4611686018427387904, 4]", 0, 4)), HasSubstr("overflows"));
  EXPECT_THAT(one(entry("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4)), HasSubstr("9 dimensions"));
  EXPECT_THAT(one(R"({"dtype": "F32", "shape": [1]})"), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(one(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]})"), HasSubstr("data_offsets"));
  EXPECT_THAT(one("[]"), HasSubstr("needs dtype"));
  EXPECT_THAT(
      error_of("{\"a\": " + entry("F32", "[2]", 0, 8) + ", \"a\": " + entry("F32", "[2]", 8, 16) + "}"),
      HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(
      error_of("{\"a\": " + entry("F32", "[2]", 0, 8) + ", \"b\": " + entry("F32", "[2]", 4, 12) + "}"),
      HasSubstr("\"a\" and \"b\" overlap"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of("{\"a\": " + std::string(100, '[') + "}"), HasSubstr("JSON byte"));
  EXPECT_THAT(error_of(std::vector<std::byte>(7)), HasSubstr("shorter than 8 bytes"));
}

TEST(SafetensorsHostile, header_lengths_cost_neither_time_nor_memory) {
  AllocationProbe::reset();
  for (const uint64_t n : {1ull << 26, 1ull << 31, 1ull << 40, 1ull << 63, ~0ull}) {
    auto bytes = file_of(kGood);
    std::memcpy(bytes.data(), &n, 8);
    EXPECT_THAT(error_of(bytes), HasSubstr("the header has"));
  }
  EXPECT_LT(AllocationProbe::largest(), 64u << 10);
}

TEST(SafetensorsHostile, every_truncation_is_an_error) {
  const auto bytes = file_of(kGood, 34);
  EXPECT_EQ(error_of(bytes), "ok");
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    EXPECT_NE(error_of(part), "ok") << n;
  }
}

TEST(SafetensorsHostile, any_changed_byte_gives_an_error_or_tensors_inside_the_file) {
  const auto good = file_of(kGood, 34);
  const double start = cpu_seconds();
  for (size_t at = 0; at < 8 + kGood.size(); ++at) {
    for (const int change : {0x01, 0x04, 0x10, 0x80, 0xFF}) {
      auto bytes = good;
      bytes[at] ^= std::byte(change);
      const auto file = SafetensorsFile::parse(bytes, "m.safetensors");
      if (!file.ok()) continue;
      for (const SafetensorsTensor& t : file->tensors()) {
        ASSERT_GE(t.data.data(), bytes.data());
        ASSERT_LE(t.data.data() + t.data.size(), bytes.data() + bytes.size());
      }
    }
  }
  EXPECT_LT(cpu_seconds() - start, 30);
}

// ---- ModelSource

struct HfFolder {
  HfFolder() {
    write_file(folder.path("config.json"), R"({"model_type": "llama"})");
    write_file(folder.path("model.safetensors"), file_of(kGood));
    write_file(folder.path("tokenizer.json"), "{}");
  }
  TemporaryFolder folder;
};

TEST(ModelSource, opens_a_folder_and_the_safetensors_file_in_it) {
  const HfFolder hf;
  for (const std::string& path : {hf.folder.path(), hf.folder.path("model.safetensors")}) {
    const auto source = ModelSource::open(path);
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ((*source)->kind(), SourceKind::kHuggingFace);
    EXPECT_EQ((*source)->architecture(), "llama");
    EXPECT_NE((*source)->config(), nullptr);
    EXPECT_EQ((*source)->gguf(), nullptr);
    ASSERT_NE((*source)->find("a"), nullptr);
    EXPECT_EQ((*source)->find("nope"), nullptr);
    (*source)->drop_tensor_pages();
    EXPECT_EQ((*source)->find("a")->data[0], std::byte{0x5A});
    EXPECT_EQ(*(*source)->side_file("tokenizer.json"), "{}");
    EXPECT_EQ((*source)->side_file("missing.json").status().code(), Code::kNotFound);
    for (const char* bad : {"", "..", "../x", "a/b"})
      EXPECT_EQ((*source)->side_file(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(ModelSource, missing_parts_are_named_and_an_index_beside_the_whole_file_is_not_read) {
  const HfFolder hf;
  write_file(hf.folder.path("model.safetensors.index.json"), "{}");
  EXPECT_TRUE(ModelSource::open(hf.folder.path()).ok());
  std::filesystem::remove(hf.folder.path("config.json"));
  EXPECT_THAT(ModelSource::open(hf.folder.path()).status().message(),
              HasSubstr("no config.json in this folder"));
  EXPECT_EQ(ModelSource::open(hf.folder.path("x.gguf")).status().code(), Code::kNotFound);
  EXPECT_EQ(ModelSource::open("/dev/null").status().code(), Code::kInvalidArgument);
}

TEST(ModelSource, two_tensors_that_stand_for_one_are_an_error) {
  const TemporaryFolder folder;
  GgufWriter w;
  const Bytes data = Bytes().fill(4, 0);
  w.tensor("output_norm.weight", {1}, 0, data).tensor("model.norm.weight", {1}, 0, data);
  write_file(folder.path("m.gguf"), w.build());
  EXPECT_THAT(ModelSource::open(folder.path("m.gguf")).status().message(),
              HasSubstr("two tensors stand for"));
}

TEST(ModelSource, identity_changes_with_content_and_with_time) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.gguf");
  const auto identity = [&] { return (*ModelSource::open(path))->identity(); };
  const auto make = [&](uint8_t value) {
    GgufWriter w;
    w.tensor("output_norm.weight", {1 << 20}, 0, Bytes().fill(4 << 20, value));
    write_file(path, w.build());
    std::filesystem::last_write_time(path, std::filesystem::file_time_type{} + std::chrono::hours(1));
  };
  make(1);
  const std::string first = identity();
  EXPECT_EQ(first.size(), 64u);
  make(1);
  EXPECT_EQ(identity(), first);
  make(2);
  EXPECT_NE(identity(), first);
  make(1);
  std::filesystem::last_write_time(path, std::filesystem::file_time_type{} + std::chrono::hours(2));
  EXPECT_NE(identity(), first);
}

}  // namespace
}  // namespace invar
