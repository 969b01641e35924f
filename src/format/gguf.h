#pragma once
// GgufFile: the checked directory of a GGUF file (version 2 or 3, little-endian): metadata and tensor infos
// as views into its bytes. Borrows the bytes; read-only, thread-safe. parse() trusts nothing: whatever it
// returns lies inside the file, aligned, without overlaps or duplicates, and costs memory in proportion to
// what is stored.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "format/weight_type.h"

namespace invar {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
const char* gguf_type_name(GgufType type);

// An array of strings, walked in place: begin() to end() visits each once. Nothing is copied.
class GgufStrings {
 public:
  class Iterator {
   public:
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const { return {reinterpret_cast<const char*>(at_ + 8), length()}; }
    Iterator& operator++() {
      at_ += 8 + length();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    uint64_t length() const {
      uint64_t n;
      std::memcpy(&n, at_, 8);
      return n;
    }
    const std::byte* at_;
  };

  GgufStrings(std::span<const std::byte> bytes, uint64_t count) : bytes_(bytes), count_(count) {}
  size_t size() const { return count_; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
  uint64_t count_;
};

struct GgufEntry {
  std::string_view key;
  GgufType type;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;                // of an array
  std::span<const std::byte> bytes;  // the value; a string without its length; the elements of an array
};

struct GgufTensor {
  std::string_view name;
  const WeightType* type;
  std::vector<int64_t> shape;  // row-major: the file's dimensions reversed; at least one
  std::span<const std::byte> data;
};

class GgufFile {
 public:
  // label names the file in messages.
  static Result<GgufFile> parse(std::span<const std::byte> file, const std::string& label);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  size_t header_bytes() const { return header_bytes_; }  // everything before the tensor data
  // A file of its own with the same metadata and no tensors.
  std::vector<std::byte> metadata_file() const;
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufEntry* find(std::string_view key) const;  // nullptr: absent

  // Typed reading. An absent key is nullopt; a value of another type or out of range is an error that names
  // the key. Integers of any width are accepted where the value fits, F64 where a float is wanted.
  Result<std::optional<uint32_t>> get_u32(std::string_view key) const;
  Result<std::optional<int64_t>> get_int(std::string_view key) const;
  Result<std::optional<float>> get_f32(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  Result<std::optional<GgufStrings>> get_strings(std::string_view key) const;
  Result<std::optional<std::vector<float>>> get_floats(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> get_ints(std::string_view key) const;  // integers or bools

 private:
  GgufFile() = default;

  std::string label_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  size_t header_bytes_ = 0;
  std::span<const std::byte> metadata_;  // from the start of the file
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_key_;
};

}  // namespace invar
