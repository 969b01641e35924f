#include "format/packed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "base/thread_pool.h"
#include "format/memory_size.h"
#include "format/source_planes.h"
#include "tensor/numerics_version.h"

namespace invar {
namespace {

constexpr size_t kBatchBytes = 8 << 20;           // of source between two drops of its pages
constexpr size_t kProgressBytes = 64 << 20;       // smaller models are packed before a line could be read
constexpr size_t kVerifyOnOpenBytes = 256 << 20;  // up to here a full check costs less than a few tokens

// What the bytes of the packed file depend on. Whoever changes the packing raises kPackedLayoutVersion.
// front: hash of what lies in front of the packed file, of a packed model.
Digest cache_key(const ModelSource& source, std::span<const PackedEntry> entries, uint64_t front = 0) {
  std::string text = fmt::format("layout {}\nnumerics {}\nsource {}\n", kPackedLayoutVersion,
                                 kNumericsVersion, source.identity());
  if (front != 0) text += fmt::format("front {:016x}\n", front);
  for (const PackedEntry& e : entries) {
    text +=
        fmt::format("{} {} {} {} {} {} {} {} {}", e.section.name,
                    e.section.form ? e.section.form->name : "vector", e.section.rows, e.section.cols,
                    e.source->stored_name, e.source->type->name, e.order.head_dim, e.first_row, e.add_one);
    if (e.experts > 0 || e.order.step > 1 || e.transposed)
      text += fmt::format(" {} {} {} {}", e.experts, e.expert, e.order.step, e.transposed);
    text += '\n';
  }
  return sha256(text);
}

// The rows of the matrix or vector that holds an entry's, and its bytes.
int64_t stored_rows(const PackedEntry& e) {
  if (e.section.form != nullptr && e.source->shape.size() == 1) return 1;  // a matrix written as a vector
  return e.source->shape[(e.experts > 0 ? 1 : 0) + (e.transposed ? 1 : 0)];
}
std::span<const std::byte> stored_matrix(const PackedEntry& e) {
  const size_t bytes = e.source->data.size() / static_cast<size_t>(std::max(e.experts, 1));
  return e.source->data.subspan(static_cast<size_t>(e.expert) * bytes, bytes);
}

// The bytes from the first to the last row that an entry takes; of a transposed matrix all.
std::span<const std::byte> part_of_source(const PackedEntry& e) {
  const std::span<const std::byte> all = stored_matrix(e);
  if (e.transposed) return all;
  const int64_t rows = stored_rows(e), count = e.order.step * (e.section.rows - 1) + 1;
  CHECK(e.first_row >= 0 && e.first_row <= rows && count <= rows - e.first_row);
  const size_t row_bytes = all.size() / static_cast<size_t>(rows);
  return all.subspan(static_cast<size_t>(e.first_row) * row_bytes, static_cast<size_t>(count) * row_bytes);
}

class Packer {
 public:
  Packer(const ModelSource& source, const PackOptions& options, size_t total)
      : source_(source), pool_({.threads = options.threads}) {
    if (options.progress && total >= kProgressBytes)
      progress_.emplace("packing " + std::filesystem::path(source.path()).filename().string(),
                        static_cast<int64_t>(total));
  }

  Status pack(const PackedEntry& e, std::byte* out) {
    const std::span<const std::byte> data = part_of_source(e);
    if (e.section.form == nullptr) {
      RETURN_IF_ERROR(
          pack_vector(*e.source->type, data, e.section.rows, e.order, reinterpret_cast<float*>(out)));
      if (e.add_one)
        for (int64_t i = 0; i < e.section.rows; ++i)
          reinterpret_cast<float*>(out)[i] += 1.0f;
      done(data);
      return {};
    }
    const size_t row_bytes = data.size() / static_cast<size_t>(e.section.rows);
    const size_t tile_size = tile_bytes(*e.section.form, e.section.cols);
    const int64_t tiles = tile_count(e.section.rows);
    const auto batch = std::max<int64_t>(1, static_cast<int64_t>(kBatchBytes / (row_bytes * kTileRows)));
    for (int64_t first = 0; first < tiles; first += batch) {
      const int64_t n = std::min(batch, tiles - first);
      pool_.run(n, [&](int64_t i, int) {
        const int64_t tile = first + i;
        const Status status = pack_one(e, data, tile, out + static_cast<size_t>(tile) * tile_size);
        if (status.ok()) return;
        std::lock_guard lock(mutex_);
        if (error_.ok()) error_ = status;
      });
      RETURN_IF_ERROR(error_);
      const size_t begin = static_cast<size_t>(first) * kTileRows * row_bytes;
      const size_t end = std::min(data.size(), begin + static_cast<size_t>(n) * kTileRows * row_bytes);
      done(data.subspan(begin, end - begin));
    }
    source_.drop_tensor_pages(data);  // pages that two batches shared
    if (e.section.form->gathered)
      put_columns(*e.source->planes, out + static_cast<size_t>(tiles) * tile_size, out + e.section.bytes());
    return {};
  }

 private:
  static void put_columns(const SourcePlanes& planes, std::byte* out, std::byte* end) {
    const auto columns = std::as_bytes(std::span(planes.order));
    std::fill(std::copy(columns.begin(), columns.end(), out), end, std::byte{0});
  }

  static Status pack_one(const PackedEntry& e, std::span<const std::byte> data, int64_t tile,
                         std::byte* out) {
    const auto& [rows, cols] = std::pair(e.section.rows, e.section.cols);
    if (!e.transposed)
      return pack_tile(*e.source->type, data, rows, cols, e.order, tile, out, e.source->planes.get());
    return pack_transposed_tile(*e.source->type, data, stored_rows(e), e.first_row, rows, cols, e.order, tile,
                                out);
  }

  void done(std::span<const std::byte> part) {
    source_.drop_tensor_pages(part);
    if (progress_) progress_->advance(static_cast<int64_t>(part.size()));
  }

  const ModelSource& source_;
  ThreadPool pool_;
  std::optional<Progress> progress_;
  std::mutex mutex_;
  Status error_;
};

// Every entry to its place.
Status pack_all(const ModelSource& source, std::span<const PackedEntry> entries, const PackOptions& options,
                const std::function<std::byte*(size_t)>& place) {
  size_t source_bytes = 0;
  for (const PackedEntry& e : entries)
    source_bytes += part_of_source(e).size();
  Packer packer(source, options, source_bytes);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Status status = packer.pack(entries[i], place(i));
    if (!status.ok())
      return status.with_context(
          fmt::format("{}: tensor {}", source.path(), quote(entries[i].source->stored_name)));
  }
  return {};
}

std::vector<PackedSection> sections_of(std::span<const PackedEntry> entries) {
  std::vector<PackedSection> sections;
  for (const PackedEntry& e : entries)
    sections.push_back(e.section);
  return sections;
}

// The shapes of a packed model are backed by no bytes of their own: before offsets are added up, they must
// fit into its file.
Status check_fits(const ModelSource& source, std::span<const PackedSection> sections) {
  constexpr int64_t kMostElements = int64_t{1} << 36;  // of one matrix; padding makes them 2^42 bytes at most
  std::error_code ec;
  const uint64_t file_bytes = std::filesystem::file_size(source.path(), ec);
  uint64_t bytes = 0;
  for (const PackedSection& s : sections) {
    const bool sane = s.rows >= 0 && s.cols >= 0 && (s.cols == 0 || s.rows <= kMostElements / s.cols);
    if (sane) bytes += s.bytes();
    if (!sane || bytes > file_bytes)
      return corrupt(fmt::format(
          "{}: {} and what is before it do not fit into the file; copy the file again, or convert its "
          "source again",
          source.path(), quote(s.name)));
  }
  return {};
}

}  // namespace

std::string packed_path(const std::string& source_path, const std::string& folder) {
  std::error_code ec;
  const std::filesystem::path full = std::filesystem::weakly_canonical(source_path, ec);
  const std::string text = ec ? source_path : full.string();
  const std::string stem = std::filesystem::path(text).filename().string().substr(0, 100);
  const Digest digest = sha256(text);
  return fmt::format("{}/{}-{}.packed", folder, stem, hex(std::span(digest).first(8)));
}

Result<std::unique_ptr<PackedWeights>> PackedWeights::open(const ModelSource& source,
                                                           const std::vector<PackedEntry>& entries,
                                                           const PackOptions& options) {
  std::unique_ptr<PackedWeights> weights(new PackedWeights);
  weights->sections_ = sections_of(entries);
  if (source.packed() != nullptr) RETURN_IF_ERROR(check_fits(source, weights->sections_));
  weights->offsets_ = section_offsets(weights->sections_, 0);
  weights->bytes_ = weights->offsets_.back();

  const uint64_t memory = options.memory_bytes == 0 ? memory_size() : options.memory_bytes;
  weights->exceeds_memory_ = weights->bytes_ >= memory;
  if (weights->exceeds_memory_) {
    if (options.folder.empty() && source.packed() == nullptr)
      return resource_exhausted(fmt::format(
          "{}: {} of weights do not fit into {} of memory; with a cache folder they are read from "
          "there as they are needed",
          source.path(), size_text(weights->bytes_), size_text(memory)));
    log_info(
        "{}: {} of weights exceed {} of memory: they are read from disk as they are needed, which is slow",
        source.path(), size_text(weights->bytes_), size_text(memory));
  }
  RETURN_IF_ERROR(source.packed() != nullptr
                      ? weights->map_packed(source, cache_key(source, entries, source.packed()->front_hash),
                                            options.progress)
                      : weights->open_or_pack(source, entries, options));
  return weights;
}

Status PackedWeights::take(std::unique_ptr<PackedFile> file, bool progress) {
  if (!exceeds_memory_) file->read_ahead(progress);
  if (file->size() <= kVerifyOnOpenBytes) RETURN_IF_ERROR(file->verify());
  // Checking a file that does not fit into memory would keep on pushing out what answers need.
  if (file->size() > kVerifyOnOpenBytes && !exceeds_memory_) file->verify_in_background();
  file_ = std::move(file);
  return {};
}

Status PackedWeights::map_packed(const ModelSource& source, const Digest& key, bool progress) {
  auto file = PackedFile::open(source.path(), key, sections_, source.packed()->weights_at);
  const Status status = file.ok() ? take(*std::move(file), progress) : file.status();
  if (status.code() != Code::kCorrupt) return status;
  return corrupt(status.message() + "; copy the file again, or convert its source again");
}

Status PackedWeights::open_or_pack(const ModelSource& source, const std::vector<PackedEntry>& entries,
                                   const PackOptions& options) {
  if (!options.folder.empty()) {
    const Digest key = cache_key(source, entries);
    const std::string path = packed_path(source.path(), options.folder);
    Result<std::unique_ptr<PackedFile>> cached = PackedFile::open(path, key, sections_);
    const Status status = cached.ok() ? take(*std::move(cached), options.progress) : cached.status();
    if (status.ok()) return {};
    if (status.code() != Code::kNotFound) log_info("{}: packing again", status.message());
    Result<std::unique_ptr<PackedFile>> created = PackedFile::create(path, key, sections_);
    if (created.ok()) {
      file_ = *std::move(created);
    } else {
      if (exceeds_memory_) return created.status();
      log_warning("no packed weights in the cache: {}; packing in memory, as every later start will",
                  created.status().message());
    }
  }
  if (file_ == nullptr) {
    ASSIGN_OR_RETURN(memory_, Buffer::allocate(bytes_));
  }
  RETURN_IF_ERROR(pack_all(source, entries, options, [this](size_t i) {
    return file_ ? file_->mutable_section(i) : memory_.data() + offsets_[i];
  }));
  if (file_) file_->publish();
  return {};
}

Result<uint64_t> PackedWeights::write(const ModelSource& source, const std::vector<PackedEntry>& entries,
                                      std::span<const std::byte> record, const std::string& path,
                                      const PackOptions& options) {
  CHECK(source.packed() == nullptr && !record.empty());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PackedFile> file,
      PackedFile::create(path, cache_key(source, entries, hash64(record)), sections_of(entries), record));
  RETURN_IF_ERROR(pack_all(source, entries, options, [&](size_t i) { return file->mutable_section(i); }));
  file->publish(options.existing);
  RETURN_IF_ERROR(file->wait_published());
  return uint64_t{record.size()} + file->size();
}

const std::byte* PackedWeights::section(size_t entry) const {
  return file_ ? file_->section(entry) : memory_.data() + offsets_[entry];
}

PackedMatrix PackedWeights::matrix(size_t entry) const {
  const PackedSection& s = sections_[entry];
  CHECK(s.form != nullptr);
  return {s.form, s.rows, s.cols, section(entry)};
}

std::span<const float> PackedWeights::vector(size_t entry) const {
  const PackedSection& s = sections_[entry];
  CHECK(s.form == nullptr);
  return {reinterpret_cast<const float*>(section(entry)), static_cast<size_t>(s.rows)};
}

}  // namespace invar
