#include "format/gguf.h"

#include <gmock/gmock.h>

#include "format/allocation_probe.h"
#include "format/hf_config.h"
#include "format/safetensors.h"
#include "format/test_files.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kArray = 9, kString = 8;

Bytes strings(std::initializer_list<std::string_view> items) {
  Bytes out;
  for (const std::string_view s : items)
    out.string(s);
  return out;
}

// Every kind of value, nested arrays, two tensors.
GgufWriter small_file() {
  GgufWriter w;
  w.string("general.architecture", "llama").u32("general.alignment", 32).boolean("flag", true);
  w.key("u8", 0, Bytes().put<uint8_t>(200)).key("i8", 1, Bytes().put<int8_t>(-3));
  w.key("u16", 2, Bytes().put<uint16_t>(60000)).key("i16", 3, Bytes().put<int16_t>(-300));
  w.key("i32", 5, Bytes().put<int32_t>(-70000))
      .f32("f32", 1.5f)
      .key("u64", 10, Bytes().put<uint64_t>(1ull << 40));
  w.key("i64", 11, Bytes().put<int64_t>(-5)).key("f64", 12, Bytes().put(2.25));
  w.array("strings", kString, 3, strings({"a", "", "long one"}));
  w.array("floats", 6, 2, Bytes().put(1.f).put(-2.f)).array("ints", 5, 3, Bytes().put(1).put(-2).put(3));
  w.array("bools", 7, 2, Bytes().put<uint8_t>(1).put<uint8_t>(0));
  w.array(
      "nested", kArray, 2,
      Bytes().put(kString).put<uint64_t>(1).string("x").put<uint32_t>(4).put<uint64_t>(2).put(7u).put(8u));
  w.array("empty", 4, 0, {});
  w.tensor("token_embd.weight", {32, 2}, 2, Bytes().fill(36, 0x11));  // Q4_0
  w.tensor("output_norm.weight", {5}, 0, Bytes().fill(20, 0));
  return w;
}

Result<GgufFile> parse(const std::vector<std::byte>& bytes) {
  return GgufFile::parse(bytes, "m.gguf");
}

std::string error_of(const GgufWriter& w) {
  const auto bytes = w.build();
  const auto file = parse(bytes);
  return file.ok() ? "ok" : file.status().message();
}

TEST(Gguf, reads_every_kind_of_value) {
  const auto bytes = small_file().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(**file->get_string("general.architecture"), "llama");
  EXPECT_EQ(**file->get_int("u8"), 200);
  EXPECT_EQ(**file->get_int("i8"), -3);
  EXPECT_EQ(**file->get_int("u16"), 60000);
  EXPECT_EQ(**file->get_int("i16"), -300);
  EXPECT_EQ(**file->get_int("i32"), -70000);
  EXPECT_EQ(**file->get_int("u64"), int64_t{1} << 40);
  EXPECT_EQ(**file->get_int("i64"), -5);
  EXPECT_EQ(**file->get_f32("f32"), 1.5f);
  EXPECT_EQ(**file->get_f32("f64"), 2.25f);
  EXPECT_EQ(**file->get_bool("flag"), true);
  std::vector<std::string> texts;
  const auto array = file->get_strings("strings");
  for (const std::string_view s : **array)
    texts.emplace_back(s);
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "", "long one"}));
  EXPECT_EQ((*array)->size(), 3u);
  EXPECT_EQ(**file->get_floats("floats"), (std::vector<float>{1, -2}));
  EXPECT_EQ(**file->get_ints("ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(**file->get_ints("bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE((*file->get_ints("empty"))->empty());
  EXPECT_EQ(file->find("nested")->count, 2u);
}

TEST(Gguf, an_absent_key_is_no_error_and_a_wrong_type_names_the_key) {
  const auto bytes = small_file().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->get_u32("nothing")->has_value());
  EXPECT_FALSE(file->get_strings("nothing")->has_value());
  for (const char* key : {"i8", "u64", "flag", "f32", "strings", "general.architecture"})
    EXPECT_THAT(file->get_u32(key).status().message(), HasSubstr(std::string("\"") + key + "\"")) << key;
  EXPECT_FALSE(file->get_f32("u8").ok());
  EXPECT_FALSE(file->get_bool("u8").ok());
  EXPECT_FALSE(file->get_string("strings").ok());
  EXPECT_FALSE(file->get_strings("ints").ok());
  EXPECT_FALSE(file->get_floats("ints").ok());
  EXPECT_FALSE(file->get_ints("floats").ok());
  EXPECT_FALSE(file->get_ints("nested").ok());
  EXPECT_FALSE(file->get_ints("u8").ok());
}

TEST(Gguf, tensors_have_row_major_shapes_and_their_bytes) {
  const auto bytes = small_file().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor& t = file->tensors()[0];
  EXPECT_EQ(t.name, "token_embd.weight");
  EXPECT_STREQ(t.type->name, "Q4_0");
  EXPECT_EQ(t.shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(t.data.size(), 36u);
  EXPECT_EQ(t.data[0], std::byte{0x11});
  EXPECT_EQ(file->tensors()[1].data.data(), t.data.data() + 64);
}

TEST(Gguf, version_2_is_read_and_others_are_refused_by_name) {
  GgufWriter w = small_file();
  w.version = 2;
  EXPECT_EQ(error_of(w), "ok");
  w.version = 1;
  EXPECT_THAT(error_of(w), HasSubstr("version 1"));
  w.version = 4;
  EXPECT_THAT(error_of(w), HasSubstr("version 4"));
  w.version = 0x03000000;
  EXPECT_THAT(error_of(w), HasSubstr("big-endian"));
  auto bytes = small_file().build();
  bytes[0] = std::byte{'X'};
  EXPECT_THAT(parse(bytes).status().message(), HasSubstr("not a GGUF file"));
  const std::string_view pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  const auto text = std::as_bytes(std::span(pointer));
  EXPECT_THAT(parse({text.begin(), text.end()}).status().message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(SafetensorsFile::parse(text, "x").status().message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(HfConfig::parse(pointer, "x").status().message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(parse({}).status().message(), HasSubstr("not a GGUF file"));
}

TEST(Gguf, structural_faults_are_named) {
  const auto with = [](auto change) {
    GgufWriter w = small_file();
    change(w);
    return error_of(w);
  };
  const Bytes row = Bytes().fill(18, 0);
  EXPECT_THAT(with([](auto& w) { w.u32("u8", 1); }), HasSubstr("\"u8\" occurs twice"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("output_norm.weight", {32}, 2, row); }),
              HasSubstr("\"output_norm.weight\" occurs twice"));
  EXPECT_THAT(with([](auto& w) { w.key("k", 13, Bytes().put(1)); }), HasSubstr("unknown value type 13"));
  EXPECT_THAT(with([](auto& w) { w.array("k", 99, 1, Bytes().put(1)); }), HasSubstr("unknown value type 99"));
  EXPECT_THAT(with([](auto& w) { w.key("k", 7, Bytes().put<uint8_t>(2)); }), HasSubstr("bool of value 2"));
  EXPECT_THAT(with([](auto& w) { w.u32("", 2); }), HasSubstr("key is empty"));
  EXPECT_THAT(with([](auto& w) { w.u32("a\x01z", 2); }), HasSubstr("\"a\\x01z\" holds control characters"));
  EXPECT_THAT(with([](auto& w) { w.u32(std::string(70000, 'k'), 2); }), HasSubstr("more than 65535"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {32}, 77, row); }), HasSubstr("type number 77"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {32}, 0xFFFFFFFF, row); }),
              HasSubstr("type number 4294967295"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {33}, 2, row); }),
              HasSubstr("no multiple of the 32 elements"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {32, 0}, 2, row); }), HasSubstr("dimension of size 0"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {}, 2, row); }), HasSubstr("0 dimensions"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {32, 1, 1, 1, 1}, 2, row); }), HasSubstr("5 dimensions"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {32, 1ull << 60}, 2, row); }), HasSubstr("overflow"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {1ull << 62}, 0, row); }), HasSubstr("overflow"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {1ull << 63}, 0, row); }), HasSubstr("overflow"));
  EXPECT_THAT(with([&](auto& w) { w.tensor("t", {1ull << 40}, 0, row); }), HasSubstr("truncated"));
  EXPECT_THAT(with([&](auto& w) { w.tensor_at("t", {32}, 2, 0); }), HasSubstr("overlap"));
  EXPECT_THAT(with([&](auto& w) { w.tensor_at("t", {32}, 2, 16); }),
              HasSubstr("no multiple of the alignment"));
  EXPECT_THAT(with([&](auto& w) { w.tensor_at("t", {32}, 2, 1ull << 62); }), HasSubstr("beyond the file"));
  EXPECT_THAT(with([&](auto& w) { w.tensor_at("t", {32}, 2, ~31ull); }), HasSubstr("beyond the file"));
}

TEST(Gguf, alignment_must_be_a_bounded_power_of_two) {
  for (const uint32_t bad : {0u, 3u, 48u, 1u << 21, 0xFFFFFFFFu}) {
    GgufWriter w;
    w.u32("general.alignment", bad);
    EXPECT_THAT(error_of(w), HasSubstr("general.alignment is")) << bad;
  }
  GgufWriter w;
  w.key("general.alignment", 10, Bytes().put<uint64_t>(64));
  EXPECT_THAT(error_of(w), HasSubstr("\"general.alignment\" should be u32"));
  GgufWriter good;
  good.alignment = 128;
  good.u32("general.alignment", 128)
      .tensor("a", {1}, 0, Bytes().fill(4, 0))
      .tensor("b", {1}, 0, Bytes().fill(4, 0));
  EXPECT_EQ(error_of(good), "ok");
}

TEST(Gguf, deep_nesting_ends_in_an_error) {
  Bytes value;
  for (int i = 0; i < 100000; ++i)
    value.put(kArray).put<uint64_t>(1);
  GgufWriter w;
  w.key("deep", kArray, value);
  EXPECT_THAT(error_of(w), HasSubstr("nests arrays deeper"));
}

// Whatever is accepted may be read safely: the getters and tensors stay inside the file.
void touch_everything(const GgufFile& file, std::span<const std::byte> bytes) {
  const std::byte *begin = bytes.data(), *end = begin + bytes.size();
  for (const GgufEntry& e : file.entries()) {
    (void)file.get_u32(e.key).ok();
    (void)file.get_int(e.key).ok();
    (void)file.get_f32(e.key).ok();
    (void)file.get_bool(e.key).ok();
    (void)file.get_string(e.key).ok();
    (void)file.get_floats(e.key).ok();
    (void)file.get_ints(e.key).ok();
    size_t n = 0;
    const auto strings = file.get_strings(e.key);
    if (strings.ok() && strings->has_value()) {
      for (const std::string_view s : **strings) {
        ASSERT_LE(reinterpret_cast<const std::byte*>(s.data()) + s.size(), end);
        n++;
      }
      ASSERT_EQ(n, (*strings)->size());
    }
  }
  for (const GgufTensor& t : file.tensors()) {
    ASSERT_GE(t.data.data(), begin);
    ASSERT_LE(t.data.data() + t.data.size(), end);
    int64_t elements = 1;
    for (const int64_t d : t.shape)
      elements *= d;
    ASSERT_EQ(t.data.size(), static_cast<size_t>(elements / t.type->block * t.type->block_bytes));
  }
}

TEST(GgufHostile, every_truncation_is_an_error) {
  const auto bytes = small_file().build();
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A copy of exact size, so that a sanitizer sees the first byte read beyond it.
    const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    const auto file = parse(part);
    ASSERT_FALSE(file.ok()) << n;
    ASSERT_EQ(file.status().code(), Code::kCorrupt) << n << ": " << file.status().message();
  }
}

TEST(GgufHostile, any_changed_byte_gives_an_error_or_a_file_that_is_safe_to_read) {
  const GgufWriter w = small_file();
  const auto good = w.build();
  const double start = cpu_seconds();
  AllocationProbe::reset();
  size_t refused = 0, tried = 0;
  for (size_t at = 0; at < w.directory_bytes(); ++at) {
    for (const int change : {0x01, 0x80, 0xFF, 0x20, 0x7F}) {
      auto bytes = good;
      bytes[at] ^= std::byte(change);
      const auto file = parse(bytes);
      tried++;
      if (!file.ok()) {
        refused++;
        ASSERT_FALSE(file.status().message().empty());
      } else {
        touch_everything(*file, bytes);
      }
    }
  }
  EXPECT_GT(refused, tried / 4);
  EXPECT_LT(AllocationProbe::largest(), 64u << 10);
  EXPECT_LT(cpu_seconds() - start, 30);
}

TEST(GgufHostile, huge_counts_cost_neither_time_nor_memory) {
  const uint64_t huge[] = {1ull << 20, 1ull << 31, 1ull << 32, 1ull << 61, 1ull << 63, ~0ull};
  const auto good = small_file().build();
  AllocationProbe::reset();
  for (const uint64_t n : huge) {
    for (const size_t at : {size_t{8}, size_t{16}, size_t{24}}) {  // tensors, keys, length of the first key
      auto bytes = good;
      std::memcpy(bytes.data() + at, &n, 8);
      const auto file = parse(bytes);
      ASSERT_FALSE(file.ok());
      EXPECT_THAT(file.status().message(), testing::AnyOf(HasSubstr("do not fit"), HasSubstr("truncated")));
    }
    for (const uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
      GgufWriter w;
      w.array("a", element, n, Bytes().fill(64, 0));
      EXPECT_THAT(error_of(w), HasSubstr("truncated")) << element << " " << n;
    }
    GgufWriter s;
    s.key("s", kString, Bytes().put(n));
    EXPECT_THAT(error_of(s), HasSubstr("truncated"));
    GgufWriter nested;
    nested.array("a", kArray, 1, Bytes().put(4u).put(n));
    EXPECT_THAT(error_of(nested), HasSubstr("truncated"));
  }
  EXPECT_LT(AllocationProbe::largest(), 64u << 10);
}

}  // namespace
}  // namespace invar
