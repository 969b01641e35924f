#pragma once
// A model as a GGUF file: of a GGUF file with the same metadata and other tensor types, of a folder with
// metadata that our reader finds to say the same. What stays in its type keeps its bytes. Errors name tensor
// and file. Uses all threads it is given.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/convert/block_encoders.h"
#include "cli/new_file.h"
#include "format/model_source.h"

namespace invar {

struct ConvertOptions {
  // Of the matrices; nullptr: every tensor as it is, F32 where GGUF has no type for it.
  const BlockEncoder* type = nullptr;
  int threads = 0;  // 0: every core
  Existing existing = Existing::kReplaced;
};

struct Conversion {
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  uint64_t file_bytes = 0;
  int tensors = 0, kept = 0;         // kept: byte for byte
  int widened = 0;                   // to F32, since GGUF has no type for them
  std::map<std::string, int> types;  // of the tensors written
};

// What the choice of a type looks at.
struct ConvertedTensor {
  std::string_view gguf_name;
  std::span<const int64_t> shape;
  const WeightType& type;  // as it is stored
  double bits;             // of a weight, with all its scales
};

// The type that a tensor gets. Vectors, norms and routers stay, and what is no larger than the type asked
// for. The output layer (and an embedding that may be tied to it) has at least Q8_0; rows that a block does
// not divide get Q8_0, else F16.
const WeightType& converted_type(const ConvertedTensor& tensor, const BlockEncoder* wanted);
// Of a tensor of a GGUF file. One with factors beside it counts as F32.
const WeightType& converted_type(const SourceTensor& tensor, const BlockEncoder* wanted);

double bits_per_weight(const WeightType& type);

Result<Conversion> convert_gguf(const ModelSource& source, const std::string& path,
                                const ConvertOptions& options);

Result<Conversion> convert_folder(const ModelSource& source, const std::string& path,
                                  const ConvertOptions& options);

inline Result<Conversion> convert_model(const ModelSource& source, const std::string& path,
                                        const ConvertOptions& options) {
  return source.gguf() != nullptr ? convert_gguf(source, path, options)
                                  : convert_folder(source, path, options);
}

}  // namespace invar
