#include "base/hash.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <vector>

namespace invar {
namespace {

std::span<const std::byte> bytes_of(const std::vector<uint8_t>& v) {
  return std::as_bytes(std::span(v));
}

TEST(Hash, Sha256KnownAnswers) {
  EXPECT_EQ(hex(sha256(std::string_view(""))),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(std::string_view("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Hash, Sha256OfAFileEqualsThatOfItsBytes) {
  const std::string path = ::testing::TempDir() + "invar_hash_test", text(3'000'001, 'x');
  std::ofstream(path, std::ios::binary) << text;
  const Result<Digest> digest = sha256_file(path);
  std::remove(path.c_str());
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(*digest, sha256(text));
  EXPECT_EQ(sha256_file(path).status().code(), Code::kNotFound);
  EXPECT_EQ(sha256_file("/").status().code(), Code::kInvalidArgument);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // nobody writes into it
  EXPECT_EQ(sha256_file(path).status().code(), Code::kInvalidArgument);
  std::remove(path.c_str());
}

TEST(Hash, Hash64ChangesWithEveryBitLengthAndSeed) {
  std::vector<uint8_t> data(131);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = uint8_t(i * 37);
  const uint64_t base = hash64(bytes_of(data));
  std::set<uint64_t> seen{base};
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= uint8_t(1 << bit % 8);
    EXPECT_TRUE(seen.insert(hash64(bytes_of(data))).second) << bit;
    data[bit / 8] ^= uint8_t(1 << bit % 8);
  }
  for (size_t length = 0; length < data.size(); ++length) {
    EXPECT_TRUE(seen.insert(hash64(bytes_of(data).first(length))).second) << length;
  }
  EXPECT_TRUE(seen.insert(hash64(bytes_of(data), 1)).second);
  std::set<uint64_t> zeros;
  for (size_t n = 0; n < 200; ++n)
    EXPECT_TRUE(zeros.insert(hash64(bytes_of(std::vector<uint8_t>(n)))).second) << n;
}

// Cache files live longer than one build: the function must never change silently.
TEST(Hash, Hash64KnownAnswers) {
  EXPECT_EQ(hash64({}), 17314548128307460120u);
  std::vector<uint8_t> data(100);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = uint8_t(i);
  EXPECT_EQ(hash64(bytes_of(data), 7), 7429841237618738157u);
}

}  // namespace
}  // namespace invar
