#include "format/packed_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "format/test_files.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<PackedSection> sections() {
  return {{"a", find_packed_form("u4z8"), 20, 64},
          {"norm", nullptr, 5, 1},
          {"b", find_packed_form("bf16"), 3, 7}};
}

Digest key_of(const std::string& text) {
  return sha256(text);
}

void fill(PackedFile& file) {
  const auto all = sections();
  for (size_t i = 0; i < all.size(); ++i)
    std::memset(file.mutable_section(i), static_cast<int>(i + 1), all[i].bytes());
}

void make(const std::string& path, const std::string& key = "k") {
  auto file = PackedFile::create(path, key_of(key), sections());
  ASSERT_TRUE(file.ok()) << file.status().message();
  fill(**file);
  (*file)->publish();
  EXPECT_EQ(*(*file)->section(2), std::byte{3});  // usable at once
  ASSERT_TRUE((*file)->wait_published().ok());
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(PackedFile, where_none_can_be_made_the_error_names_the_target) {
  const std::string path = "/proc/m.packed";  // where nobody makes files, root neither
  const auto file = PackedFile::create(path, key_of("k"), sections());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().message().find(path + ": cannot create"), 0u) << file.status().message();
  EXPECT_EQ(file.status().message().find(".tmp"), std::string::npos) << file.status().message();
}

TEST(PackedFile, a_file_that_somebody_made_meanwhile_is_kept_where_a_new_one_was_asked_for) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  auto file = PackedFile::create(path, key_of("k"), sections());
  ASSERT_TRUE(file.ok()) << file.status().message();
  fill(**file);
  write_file(path, "theirs");
  (*file)->publish(Existing::kKept);
  const Status status = (*file)->wait_published();
  EXPECT_EQ(status.message().find(path + ": was made by somebody else"), 0u) << status.message();
  file->reset();
  EXPECT_EQ(fs::file_size(path), 6u);
  EXPECT_EQ(files_in(fs::path(path).parent_path()), 1u);  // the unfinished file went
}

TEST(PackedFile, what_was_written_is_found_again) {
  const TemporaryFolder folder;
  const std::string path = folder.path("deep/m.packed");
  EXPECT_EQ(PackedFile::open(path, key_of("k"), sections()).status().code(), Code::kNotFound);
  make(path);
  EXPECT_EQ(files_in(folder.path("deep")), 1u);
  const auto file = PackedFile::open(path, key_of("k"), sections());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->verify().ok());
  const auto all = sections();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*file)->section(i)) % 64, 0u);
    for (size_t at = 0; at < all[i].bytes(); ++at)
      ASSERT_EQ((*file)->section(i)[at], std::byte(i + 1));
  }
}

TEST(PackedFile, another_key_layout_or_section_list_is_not_taken) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  make(path);
  EXPECT_THAT(PackedFile::open(path, key_of("other"), sections()).status().message(),
              HasSubstr("another model file"));
  for (int change = 0; change < 5; ++change) {
    auto other = sections();
    if (change == 0) other[0].name = "x";
    if (change == 1) other[0].form = find_packed_form("u4b");
    if (change == 2) other[1].rows = 6;
    if (change == 3) other.pop_back();
    if (change == 4) std::swap(other[0], other[2]);
    EXPECT_EQ(PackedFile::open(path, key_of("k"), other).status().code(), Code::kCorrupt) << change;
  }
  auto bytes = read_file(path);
  bytes[8] ^= std::byte{2};
  write_file(path, bytes);
  EXPECT_THAT(PackedFile::open(path, key_of("k"), sections()).status().message(),
              HasSubstr("layout version"));
}

TEST(PackedFile, changed_bytes_are_noticed) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed"), copy = folder.path("copy.packed");
  make(path);
  const auto good = read_file(path);
  const auto all = sections();
  const std::vector<size_t> offsets = section_offsets(all, 4096);
  ASSERT_EQ(good.size(), offsets.back());
  const auto covered = [&](size_t at) {  // the rest is padding between parts, which nobody reads
    for (size_t i = 0; i < all.size(); ++i)
      if (at >= offsets[i] && at < offsets[i] + all[i].bytes()) return true;
    return false;
  };
  size_t header_end = 4096;
  while (good[header_end - 1] == std::byte{0})
    header_end--;
  for (size_t at = 0; at < good.size(); at += at < header_end ? 1 : 13) {
    if (at >= header_end && !covered(at)) continue;
    auto bytes = good;
    bytes[at] ^= std::byte{0x10};
    write_file(copy, bytes);
    const auto file = PackedFile::open(copy, key_of("k"), all);
    ASSERT_FALSE(file.ok() && (*file)->verify().ok()) << "byte " << at;
    ASSERT_EQ(file.ok(), at >= 4096) << "byte " << at;
  }
}

TEST(PackedFile, damage_found_in_the_background_removes_the_file) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  make(path);
  {
    const auto good = PackedFile::open(path, key_of("k"), sections());
    ASSERT_TRUE(good.ok()) << good.status().message();
    (*good)->verify_in_background();
    EXPECT_TRUE((*good)->wait_verified().ok());
    EXPECT_FALSE((*good)->damaged());
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  auto bytes = read_file(path);
  bytes[4096] ^= std::byte{1};
  write_file(path, bytes);
  const auto damaged = PackedFile::open(path, key_of("k"), sections());
  ASSERT_TRUE(damaged.ok()) << damaged.status().message();
  (*damaged)->verify_in_background();
  EXPECT_EQ((*damaged)->wait_verified().code(), Code::kCorrupt);
  EXPECT_TRUE((*damaged)->damaged());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PackedFile, a_truncated_or_foreign_file_is_not_taken) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  make(path);
  const auto good = read_file(path);
  for (const size_t n : {size_t{0}, size_t{1}, size_t{63}, size_t{100}, size_t{4096}, good.size() - 1}) {
    write_file(path, std::span(good).first(n));
    EXPECT_EQ(PackedFile::open(path, key_of("k"), sections()).status().code(), Code::kCorrupt) << n;
  }
  write_file(path, std::string(good.size(), 'x'));
  EXPECT_EQ(PackedFile::open(path, key_of("k"), sections()).status().code(), Code::kCorrupt);
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(PackedFile::open(path, key_of("k"), sections()).ok());
}

TEST(PackedFileDeathTest, a_file_that_is_cut_while_in_use_is_named) {
  GTEST_FLAG_SET(death_test_style, "fast");  // the same folder in both processes
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  make(path);
  EXPECT_EXIT(
      {
        const auto file = PackedFile::open(path, key_of("k"), sections());
        fs::resize_file(path, 4096);
        (void)(*file)->verify();
      },
      ::testing::ExitedWithCode(1), "invar: .*m.packed: the file was cut short while it was in use");
  EXPECT_EQ(PackedFile::open(path, key_of("k"), sections()).status().code(), Code::kCorrupt);
}

TEST(PackedFile, a_file_that_is_not_published_disappears) {
  const TemporaryFolder folder;
  {
    auto file = PackedFile::create(folder.path("m.packed"), key_of("k"), sections());
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(files_in(folder.path()), 1u);
    EXPECT_FALSE(fs::exists(folder.path("m.packed")));
  }
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(PackedFile, leftovers_of_dead_processes_are_removed_and_those_of_living_ones_are_not) {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.packed");
  write_file(path + ".tmp.1.1", "left behind");
  write_file(folder.path("other.packed.tmp.1.1"), "not ours");
  auto alive = PackedFile::create(path, key_of("k"), sections());
  ASSERT_TRUE(alive.ok());
  EXPECT_FALSE(fs::exists(path + ".tmp.1.1"));
  EXPECT_EQ(files_in(folder.path()), 2u);
  make(path);  // while the first is still being filled
  EXPECT_EQ(files_in(folder.path()), 3u);
  fill(**alive);
  (*alive)->publish();
  EXPECT_TRUE((*alive)->wait_published().ok());
  EXPECT_EQ(files_in(folder.path()), 2u);
  EXPECT_TRUE((*PackedFile::open(path, key_of("k"), sections()))->verify().ok());
}

TEST(PackedFile, a_failed_publication_is_reported_and_the_weights_stay) {
  const TemporaryFolder folder;
  const std::string path = folder.path("sub/m.packed");
  auto file = PackedFile::create(path, key_of("k"), sections());
  ASSERT_TRUE(file.ok());
  fill(**file);
  fs::remove_all(folder.path("sub"));
  (*file)->publish();
  EXPECT_EQ((*file)->wait_published().code(), Code::kIo);
  EXPECT_EQ(*(*file)->section(0), std::byte{1});
}

}  // namespace
}  // namespace invar
