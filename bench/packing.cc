// bench_packing: packing speed per weight type, beside what this machine needs to put the same packed bytes
// there by plain copying, in the same run. Medians, GB/s; "source" counts bytes read, all else packed bytes.
//   bench_packing [--types Q4_K,Q6_K] [--megabytes 256] (of source) [--threads 1] [--runs 5]
//                 [--folder .] (on the disk of the cache)
//
//   source, packed   pack into new pages of anonymous memory
//   memcpy           copy the packed bytes into new pages of anonymous memory
//   again            pack once more into the pages that are there now
//   file             pack into a new PackedFile, until the weights are usable
//   disk             the same until it is published: checksums, fsync, rename
//   write            write() and fsync() of the packed bytes to a new file

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "format/pack.h"
#include "format/packed_file.h"
#include "tensor/buffer.h"

namespace invar {
namespace {

constexpr int64_t kCols = 4096;

struct Options {
  std::string types, folder = ".";
  int megabytes = 256, threads = 1, runs = 5;
};

// New pages, small ones as those of a file are.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    madvise(map, bytes, MADV_NOHUGEPAGE);
    data_ = static_cast<std::byte*>(map);
  }
  ~Pages() { munmap(data_, bytes_); }
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void write_and_sync(const std::string& path, const std::byte* data, size_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  CHECK(fd >= 0);
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::write(fd, data + at, std::min<size_t>(bytes - at, 1 << 20));
    CHECK(n > 0);
    at += static_cast<size_t>(n);
  }
  CHECK(fsync(fd) == 0);
  ::close(fd);
}

void run_type(const WeightType& type, ThreadPool& pool, const Options& o) {
  const int64_t row_bytes = kCols / type.block * type.block_bytes;
  const int64_t rows = (int64_t{o.megabytes} << 20) / row_bytes / kTileRows * kTileRows;
  Buffer source(static_cast<size_t>(rows * row_bytes));
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= source.size(); i += 8) {
    const uint64_t word = random() & 0x3F3F3F3F3F3F3F3F;  // every f16 in it is finite
    std::memcpy(source.data() + i, &word, 8);
  }
  const std::span<const std::byte> data(source.data(), source.size());
  const PackedSection section{"w", type.form, rows, kCols};
  const size_t tile = tile_bytes(*type.form, kCols), bytes = section.bytes();
  const int64_t tiles = tile_count(rows);
  const std::string path = fmt::format("{}/bench-{}.packed", o.folder, getpid());
  const auto pack = [&](std::byte* out) {
    pool.run(tiles, [&](int64_t i, int) {
      CHECK(pack_tile(type, data, rows, kCols, {}, i, out + static_cast<size_t>(i) * tile).ok());
    });
  };

  std::vector<double> packed, again, copied, usable, published, written;
  for (int i = 0; i < o.runs; ++i) {
    Pages from(bytes), to(bytes);
    double start = now_s();
    pack(from.data());
    packed.push_back(now_s() - start);
    start = now_s();
    pool.run(tiles, [&](int64_t t, int) {
      std::memcpy(to.data() + static_cast<size_t>(t) * tile, from.data() + static_cast<size_t>(t) * tile,
                  tile);
    });
    copied.push_back(now_s() - start);
    start = now_s();
    pack(from.data());
    again.push_back(now_s() - start);

    start = now_s();
    {
      auto file = PackedFile::create(path, Digest{}, {section});
      CHECK(file.ok());
      pack((*file)->mutable_section(0));
      (*file)->publish();
      usable.push_back(now_s() - start);
      CHECK((*file)->wait_published().ok());
      published.push_back(now_s() - start);
    }
    unlink(path.c_str());
    start = now_s();
    write_and_sync(path, from.data(), bytes);
    written.push_back(now_s() - start);
    unlink(path.c_str());
  }
  const double gb = static_cast<double>(bytes) * 1e-9;
  fmt::print("{:<5} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n", type.name,
             static_cast<double>(source.size()) * 1e-9 / median(packed), gb / median(packed),
             gb / median(copied), gb / median(again), gb / median(usable), gb / median(published),
             gb / median(written));
  std::fflush(stdout);
}

int usage(const char* what) {
  fmt::print(stderr, "bench_packing: {}; see the head of bench/packing.cc for the flags\n", what);
  return 2;
}

int run(int argc, char** argv) {
  Options o;
  if (argc % 2 == 0) return usage("a flag lacks its value");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--types")
      o.types = "," + value + ",";
    else if (flag == "--megabytes")
      o.megabytes = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--threads")
      o.threads = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--runs")
      o.runs = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--folder")
      o.folder = value;
    else
      return usage("unknown flag");
  }
  ThreadPool pool({.threads = o.threads});
  fmt::print("{} threads, {} MiB of source, GB/s\n", pool.threads(), o.megabytes);
  fmt::print("{:<5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "type", "source", "packed", "memcpy",
             "again", "file", "disk", "write");
  for (const WeightType& type : weight_types()) {
    if (type.form == nullptr) continue;
    if (!o.types.empty() && o.types.find(fmt::format(",{},", type.name)) == std::string::npos) continue;
    run_type(type, pool, o);
  }
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  return invar::run(argc, argv);
}
