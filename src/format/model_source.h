#pragma once
// ModelSource: a model on disk, whatever its file format: typed metadata and tensors under canonical (Hugging
// Face) names. Owns the maps; borrowed tensor bytes live as long as it does. Read-only, thread-safe.
// Everything in it has been checked against hostile files; nothing is guessed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "format/weight_type.h"

namespace invar {

enum class SourceKind : uint8_t { kGguf, kHuggingFace };

struct SourceTensor {
  std::string name;         // canonical: "model.layers.0.self_attn.q_proj.weight"
  std::string stored_name;  // as in the file: "blk.0.attn_q.weight"
  const WeightType* type;
  std::vector<int64_t> shape;  // row-major: [rows, cols] or [n]
  std::span<const std::byte> data;
  std::shared_ptr<const SourcePlanes> planes = nullptr;  // of types whose scales lie elsewhere
};

int64_t element_count(std::span<const int64_t> shape);   // of a tensor that was checked
std::string shape_text(std::span<const int64_t> shape);  // "[32, 64]"

// Bytes of such a tensor in a file, of its codes alone where scales lie elsewhere. kCorrupt: rows that blocks
// do not divide, or a size beyond all files.
Result<uint64_t> stored_bytes(const WeightType& type, std::span<const int64_t> shape);

// What a packed model says of the one that it was made from.
struct PackedOrigin {
  std::string name;         // of its file or folder
  std::string digest;       // model_digest.h
  uint64_t weights_at = 0;  // where the packed file begins
  uint64_t front_hash = 0;  // of all that lies in front of it: the weights are this record's alone
};

class GgufFile;
class HfConfig;

class ModelSource {
 public:
  // A .gguf file, a folder with config.json and model.safetensors (or its parts and their index), a
  // .safetensors file inside such a folder, or a packed model (packed_source.h).
  static Result<std::unique_ptr<ModelSource>> open(const std::string& path);
  virtual ~ModelSource() = default;

  // Of a packed model the kind of its origin.
  virtual SourceKind kind() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::string architecture() const = 0;  // general.architecture or model_type
  std::span<const SourceTensor> tensors() const { return tensors_; }
  const SourceTensor* find(std::string_view canonical_name) const;  // nullptr: there is none

  // Exactly one of these is set, by kind().
  virtual const GgufFile* gguf() const { return nullptr; }
  virtual const HfConfig* config() const { return nullptr; }

  // nullptr: the weights are those of the file. Of a packed model, tensors have no data, but for those that
  // configurations are read from.
  virtual const PackedOrigin* packed() const { return nullptr; }
  // Name of the file or folder; of a packed model that of its origin.
  std::string name() const;

  // Text of a side file (tokenizer.json, ...) of a Hugging Face folder; kNotFound elsewhere.
  virtual Result<std::string> side_file(const std::string& name) const = 0;

  // Paths of the files that answers depend on, those that there are.
  virtual std::vector<std::string> files() const = 0;

  // Identity of the source for cache keys: size, mtime, header and sampled content.
  virtual std::string identity() const = 0;
  // Lets bytes of a tensor leave the resident set; they stay readable. The second form: of all tensors.
  virtual void drop_tensor_pages(std::span<const std::byte> part) const = 0;
  void drop_tensor_pages() const {
    for (const SourceTensor& tensor : tensors())
      drop_tensor_pages(tensor.data);
  }

 protected:
  // Called once, before anyone sees the source. Two tensors of one canonical name are an error.
  Status set_tensors(std::vector<SourceTensor> tensors);

 private:
  std::vector<SourceTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace invar
