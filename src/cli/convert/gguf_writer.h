#pragma once
// GgufFileWriter: writes a GGUF file (version 3) from metadata and tensors whose bytes come in order. The
// target is never half a file. Owned by one thread. Errors name the file and what the operating system said.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/new_file.h"
#include "format/gguf.h"

namespace invar {

inline constexpr uint64_t kGgufAlignment = 32;  // where a file does not say another

class GgufFileWriter {
 public:
  explicit GgufFileWriter(std::string path, uint64_t alignment = kGgufAlignment,
                          Existing existing = Existing::kReplaced)
      : file_(std::move(path), "", existing), alignment_(alignment) {}

  // Before begin(). A later entry of the same key replaces an earlier one.
  void add_entry(const GgufEntry& entry);
  void add_u32(std::string_view key, uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_u8s(std::string_view key, std::string_view bytes);
  void add_bools(std::string_view key, const std::vector<bool>& values);
  void add_tensor(std::string_view name, const WeightType& type, std::span<const int64_t> shape,
                  uint64_t bytes);

  Status begin();                                  // header and directory
  Status append(std::span<const std::byte> data);  // of the tensors in order, in pieces of any size
  // After begin(): what has been appended is in the file of this name, which is as long as it will be, with
  // zeros in the place of what is still to come.
  Result<std::string> preview();
  Status finish();                                  // everything is there
  uint64_t bytes() const { return file_.bytes(); }  // written so far

 private:
  struct Entry {
    std::string key, value;  // the value with its type
  };
  struct Tensor {
    std::string info;  // name, dimensions and type
    uint64_t bytes, offset;
  };
  Status pad_to(uint64_t position);
  uint64_t file_bytes() const;  // at the end
  void add_array(std::string_view key, GgufType element, uint64_t count, std::span<const std::byte> bytes);

  NewFile file_;
  uint64_t alignment_, data_start_ = 0, end_ = 0;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  size_t tensor_ = 0;       // that is being written
  uint64_t in_tensor_ = 0;  // bytes of it that have come
};

}  // namespace invar
