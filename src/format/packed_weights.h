#pragma once
// PackedWeights: the packed tensors of one model: mapped from a packed model or from the cache, or packed
// now, into the cache where that is possible and into anonymous memory where it is not. Source pages leave
// memory as they are packed, so there are never two copies. Made by one thread; immutable and shared
// afterwards.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"
#include "format/pack.h"
#include "format/packed_file.h"
#include "tensor/buffer.h"

namespace invar {

struct PackedEntry {
  PackedSection section;
  const SourceTensor* source;
  RowOrder order;
  int64_t first_row = 0;  // of the source, which may be a larger matrix
  bool add_one = false;   // vector: the source holds its elements less one
  // The source is a stack of this many along its first dimension, and the entry belongs to number `expert`.
  int32_t experts = 0, expert = 0;
  bool transposed = false;  // matrix: the source is [cols, rows]
};

struct PackOptions {
  std::string folder;                       // of the cache; "": pack in memory
  int threads = 0;                          // 0: every core this process may use
  bool progress = true;                     // a line on stderr for large models
  uint64_t memory_bytes = 0;                // what there is for weights; 0: all that the process can have
  Existing existing = Existing::kReplaced;  // of write(); a file of the cache is always replaced
};

// Where the packed copy of a model lies in `folder`: one file per source path (links resolved), so that a
// changed model replaces its old copy.
std::string packed_path(const std::string& source_path, const std::string& folder);

class PackedWeights {
 public:
  // Sections and sources must agree in shape (the caller has audited them), but for the rows of a part. Of a
  // packed model they are those of the file, or the error says what to do.
  static Result<std::unique_ptr<PackedWeights>> open(const ModelSource& source,
                                                     const std::vector<PackedEntry>& entries,
                                                     const PackOptions& options);

  // The packed tensors of `source`, which has data, in a new file `path` behind the bytes `record`
  // (packed_source.h). Returns when it is safe on disk, with its size.
  static Result<uint64_t> write(const ModelSource& source, const std::vector<PackedEntry>& entries,
                                std::span<const std::byte> record, const std::string& path,
                                const PackOptions& options);

  PackedMatrix matrix(size_t entry) const;
  std::span<const float> vector(size_t entry) const;
  size_t bytes() const { return bytes_; }
  bool exceeds_memory() const { return exceeds_memory_; }  // mapped; most of it is on disk at any time
  bool in_memory() const { return file_ == nullptr; }
  PackedFile* file() const { return file_.get(); }  // nullptr: in memory
  // PackedFile's; of files that were checked when they were opened, and of what was packed now: never.
  bool damaged() const { return file_ != nullptr && file_->damaged(); }
  Status wait_verified() const { return file_ != nullptr ? file_->wait_verified() : Status(); }

 private:
  Status map_packed(const ModelSource& source, const Digest& key, bool progress);
  Status open_or_pack(const ModelSource& source, const std::vector<PackedEntry>& entries,
                      const PackOptions& options);
  // Takes a file that is whole; reads all of a small one at once.
  Status take(std::unique_ptr<PackedFile> file, bool progress);
  const std::byte* section(size_t entry) const;

  std::vector<PackedSection> sections_;
  std::unique_ptr<PackedFile> file_;
  Buffer memory_;
  std::vector<size_t> offsets_;  // in memory_
  size_t bytes_ = 0;
  bool exceeds_memory_ = false;
};

}  // namespace invar
