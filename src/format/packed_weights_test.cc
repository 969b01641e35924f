#include "format/packed_weights.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "format/test_files.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A GGUF file with a quantized matrix, a float matrix and a vector, and how to pack it.
struct Fixture {
  explicit Fixture(int64_t rows = 40) : rows(rows) { write(1); }

  void write(int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto bytes = [&](size_t n) {
      Bytes b;
      for (size_t i = 0; i < n; ++i)
        b.put(static_cast<uint8_t>(random() & 0x3F));
      return b;
    };
    GgufWriter w;
    w.tensor("q", {64, static_cast<uint64_t>(rows)}, 3, bytes(static_cast<size_t>(rows) * 40));  // Q4_1
    w.tensor("f", {7, 20}, 30, bytes(280));                                                      // BF16
    w.tensor("v", {9}, 0, bytes(36));
    write_file(path(), w.build());
    fs::last_write_time(path(), fs::file_time_type{} + std::chrono::hours(seed));
  }
  std::string path() const { return folder.path("m.gguf"); }
  std::string cache() const { return folder.path("cache"); }

  Result<std::unique_ptr<PackedWeights>> open(const std::string& cache_folder, uint64_t memory = 0) const {
    source = *ModelSource::open(path());
    const std::vector<PackedEntry> entries = {
        {{"q", source->find("q")->type->form, rows, 64}, source->find("q"), {}},
        {{"f", source->find("f")->type->form, 20, 7}, source->find("f"), {}},
        {{"v", nullptr, 9, 1}, source->find("v"), {}},
    };
    return PackedWeights::open(
        *source, entries, {.folder = cache_folder, .threads = 2, .progress = false, .memory_bytes = memory});
  }
  std::string cache_file() const {
    for (const auto& item : fs::directory_iterator(cache()))
      return item.path().string();
    return "";
  }

  int64_t rows;
  TemporaryFolder folder;
  mutable std::unique_ptr<ModelSource> source;
};

std::vector<std::byte> content(const PackedWeights& w) {
  std::vector<std::byte> all;
  for (const size_t i : {0, 1}) {
    const PackedMatrix m = w.matrix(i);
    all.insert(all.end(), m.data, m.data + m.bytes());
  }
  const auto v = std::as_bytes(w.vector(2));
  all.insert(all.end(), v.begin(), v.end());
  return all;
}

TEST(PackedWeights, what_exceeds_memory_is_mapped_or_refused) {
  const Fixture f;
  const auto refused = f.open("", 100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  const auto whole = f.open("", 1 << 20);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_FALSE((*whole)->exceeds_memory());
  for (int run = 0; run < 2; ++run) {  // packed now, then from the cache
    const auto mapped = f.open(f.cache(), 100);
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    EXPECT_TRUE((*mapped)->exceeds_memory());
    EXPECT_FALSE((*mapped)->in_memory());
    EXPECT_EQ(content(**mapped), content(**whole));
    if ((*mapped)->file() != nullptr) {
      ASSERT_TRUE((*mapped)->file()->wait_published().ok());
    }
  }
}

TEST(PackedWeights, memory_new_file_and_cached_file_hold_the_same_bytes) {
  const Fixture f;
  const auto memory = f.open("");
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_TRUE((*memory)->in_memory());
  const auto want = content(**memory);
  std::string path;
  fs::file_time_type written;
  for (int round = 0; round < 3; ++round) {
    auto w = f.open(f.cache());
    ASSERT_TRUE(w.ok()) << w.status().message();
    EXPECT_FALSE((*w)->in_memory());
    EXPECT_EQ(content(**w), want);
    ASSERT_TRUE((*w)->file()->wait_published().ok());
    EXPECT_TRUE((*w)->file()->verify().ok());
    if (round == 0) path = f.cache_file(), written = fs::last_write_time(path);
    EXPECT_EQ(f.cache_file(), path);
    EXPECT_EQ(fs::last_write_time(path), written) << "packed again in round " << round;
  }
  EXPECT_EQ((*memory)->matrix(0).rows, 40);
  EXPECT_STREQ((*memory)->matrix(0).form->name, "u4b");
}

TEST(PackedWeights, a_changed_source_replaces_the_cached_file) {
  Fixture f;
  {
    ASSERT_TRUE(f.open(f.cache()).ok());
  }
  f.write(2);
  const auto want = content(**f.open(""));
  const auto got = f.open(f.cache());
  EXPECT_EQ(content(**got), want);
  ASSERT_TRUE((*got)->file()->wait_published().ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(f.cache()), fs::directory_iterator()), 1);
}

TEST(PackedWeights, a_damaged_cached_file_is_rebuilt) {
  const Fixture f;
  const auto want = content(**f.open(""));
  {
    ASSERT_TRUE(f.open(f.cache()).ok());
  }
  const std::string path = f.cache_file();
  const auto good = read_file(path);
  for (const size_t at : {size_t{0}, size_t{30}, size_t{100}, size_t{4096}, size_t{5000}, good.size() - 64}) {
    auto bytes = good;
    bytes[at] ^= std::byte{1};
    write_file(path, bytes);
    {
      EXPECT_EQ(content(**f.open(f.cache())), want) << at;
    }
    EXPECT_EQ(read_file(path), good) << at;
  }
  write_file(path, std::span(good).first(good.size() / 2));
  {
    EXPECT_EQ(content(**f.open(f.cache())), want);
  }
  EXPECT_EQ(read_file(path), good);
}

TEST(PackedWeights, processes_that_pack_at_the_same_time_all_get_the_right_bytes) {
  const Fixture f(4000);
  const auto want = content(**f.open(""));
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool good = true;
      for (int round = 0; round < 5; ++round) {
        std::error_code ec;  // the others may put files in again
        if (round == 2 && i == 0) fs::remove_all(f.cache(), ec);
        const auto w = f.open(f.cache());
        good = good && w.ok() && content(**w) == want;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  {
    EXPECT_EQ(content(**f.open(f.cache())), want);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(f.cache()), fs::directory_iterator()), 1);
}

TEST(PackedWeights, a_full_disk_means_packing_in_memory) {
  const Fixture f(4000);
  const auto want = content(**f.open(""));
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);  // the limit then reads as a failed call, as a full disk does
    const rlimit limit{10000, 10000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto w = f.open(f.cache());
    const bool good = w.ok() && (*w)->in_memory() && content(**w) == want;
    _exit(good && fs::is_empty(f.cache()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(PackedWeights, a_folder_that_cannot_be_written_means_packing_in_memory) {
  const Fixture f;
  const auto want = content(**f.open(""));
  write_file(f.folder.path("file"), "x");
  const auto below_a_file = f.open(f.folder.path("file/cache"));
  ASSERT_TRUE(below_a_file.ok());
  EXPECT_TRUE((*below_a_file)->in_memory());
  EXPECT_EQ(content(**below_a_file), want);
  const auto kernel_folder = f.open("/proc/invar");  // refused for root, too
  ASSERT_TRUE(kernel_folder.ok());
  EXPECT_TRUE((*kernel_folder)->in_memory());
}

TEST(PackedWeights, a_damaged_scale_names_the_tensor_and_leaves_no_file) {
  const Fixture f;
  auto bytes = read_file(f.path());
  const auto source = *ModelSource::open(f.path());
  const std::span<const std::byte> data = source->find("q")->data;
  GgufWriter w;
  Bytes broken;
  broken.get().assign(data.begin(), data.end());
  broken.get()[41] = std::byte{0x7C};  // second block of row 1: infinity
  w.tensor("q", {64, 40}, 3, broken)
      .tensor("f", {7, 20}, 30, Bytes().fill(280, 0))
      .tensor("v", {9}, 0, Bytes().fill(36, 0));
  write_file(f.path(), w.build());
  for (const std::string& cache : {std::string(), f.cache()}) {
    const auto result = f.open(cache);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kCorrupt);
    EXPECT_THAT(result.status().message(), testing::AllOf(HasSubstr("tensor \"q\""), HasSubstr("row 1")));
  }
  EXPECT_TRUE(fs::is_empty(f.cache()));
}

// Resident memory of this process that comes from the file `path`.
size_t resident_of(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  size_t kib = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < 17 && line.find(" ") != std::string::npos &&
        std::isxdigit(static_cast<unsigned char>(line[0])) && line.find(':') > 20)
      inside = line.find(path) != std::string::npos;
    if (inside && line.starts_with("Rss:")) kib += std::stoul(line.substr(4));
  }
  return kib * 1024;
}

TEST(PackedWeights, the_source_leaves_memory_while_it_is_packed) {
  const Fixture f(100000);  // 4 MB
  const auto w = f.open("");
  ASSERT_TRUE(w.ok());
  const size_t tensor = f.source->find("q")->data.size();
  EXPECT_LT(resident_of(f.path()), tensor / 20);
  volatile std::byte sum{0};
  for (const std::byte b : f.source->find("q")->data)
    sum = sum ^ b;
  EXPECT_GT(resident_of(f.path()), tensor / 2) << "the probe does not see the map";
}

}  // namespace
}  // namespace invar
