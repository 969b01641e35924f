#pragma once
// PackedFile: packed weights in a file that is mapped into memory (docs/formats.md draws it). A new file is
// written in place under a temporary name, used at once, and gets its final name when it is safe on disk, so
// that nobody ever sees half a file. One thread creates, fills and publishes; afterwards it is read-only for
// all.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/mapped_fault.h"
#include "base/status.h"
#include "base/temporary_files.h"
#include "format/read_ahead.h"
#include "tensor/packed.h"

namespace invar {

// Raised whenever the bytes of a packed tile or of the file change their meaning.
inline constexpr uint32_t kPackedLayoutVersion = 2;

// Where sections begin, and a packed file inside another one.
inline constexpr size_t kPackedFileAlignment = 4096;

struct PackedSection {
  std::string name;
  const PackedForm* form;  // nullptr: a vector of `rows` f32 values
  int64_t rows;
  int64_t cols;

  size_t bytes() const;
};

// Where the sections lie, from `start` on, each at a multiple of 64. The last offset is the end.
std::vector<size_t> section_offsets(std::span<const PackedSection> sections, size_t start);

class PackedFile {
 public:
  // The file at `path`, from byte `start` to its end, if that is whole and was written for this key and these
  // sections. kNotFound: there is none; kCorrupt: damaged, or written for something else.
  static Result<std::unique_ptr<PackedFile>> open(const std::string& path, const Digest& key,
                                                  const std::vector<PackedSection>& sections,
                                                  size_t start = 0);
  // A new file with all its disk space reserved (a full disk is an error here, not a signal later). It begins
  // with the bytes `front`, a multiple of kPackedFileAlignment.
  static Result<std::unique_ptr<PackedFile>> create(const std::string& path, const Digest& key,
                                                    const std::vector<PackedSection>& sections,
                                                    std::span<const std::byte> front = {});
  ~PackedFile();  // waits for publish(); a file that was not published is removed
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  size_t size() const { return size_; }  // without what is in front
  const std::byte* section(size_t i) const { return data_ + offsets_[i]; }
  std::byte* mutable_section(size_t i);  // only between create() and publish()

  // Checksums, header, fsync and rename, on a thread of its own; section() stays valid meanwhile and
  // afterwards. A failure is logged: the weights in memory are good, only the next start has to pack again.
  void publish(Existing existing = Existing::kReplaced);
  Status wait_published();  // the outcome of publish()

  // Begins to bring an opened file into memory (read_ahead.h).
  void read_ahead(bool progress);

  // Compares every section with its stored checksum: reads the whole file.
  Status verify() const;

  // The same on a thread of its own, for files too large to read before the first token. Damage is logged; a
  // file of the cache is then removed, so that the next start packs again. Ends early when the object goes.
  void verify_in_background();
  // Of verify_in_background(): whether it has found damage so far, and its outcome, which it waits for. Once
  // opened, from one thread.
  bool damaged() const { return damaged_.load(std::memory_order_acquire); }
  Status wait_verified();

 private:
  PackedFile() = default;
  void take_map(void* map, size_t bytes, size_t start);
  Status write_and_rename(Existing existing);

  std::string path_;
  std::string temporary_;          // "": opened, or published
  std::vector<std::byte> prefix_;  // header up to the checksums
  std::vector<std::string> names_;
  std::vector<size_t> offsets_, sizes_;
  size_t start_ = 0;           // in the file; 0: a file of the cache
  std::byte* data_ = nullptr;  // of the packed file, behind what is in front of it
  size_t size_ = 0;
  MappedFault fault_;
  int fd_ = -1;
  bool writable_ = false;
  std::thread publisher_, verifier_;
  std::optional<ReadAhead> read_ahead_;
  std::atomic<bool> closing_{false}, damaged_{false};
  Status published_;
};

}  // namespace invar
