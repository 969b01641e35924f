#pragma once
// SafetensorsFile: the checked directory of one .safetensors file as views into its bytes. Borrows the bytes;
// read-only, thread-safe. Tensors lie inside the file, do not overlap, and have the size that type and shape
// say.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/weight_type.h"

namespace invar {

struct SafetensorsTensor {
  std::string name;
  const WeightType* type;
  std::vector<int64_t> shape;  // row-major; empty for a scalar
  std::span<const std::byte> data;
};

class SafetensorsFile {
 public:
  // label names the file in messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> file, const std::string& label);

  size_t header_bytes() const { return header_bytes_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }

 private:
  SafetensorsFile() = default;
  size_t header_bytes_ = 0;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace invar
