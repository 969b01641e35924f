#pragma once
// QuantizedSource: a model of any format with matrices of another type, for write_packed_model(). What is
// asked of it that is not about tensors, the source answers, which it borrows. The new data lies in a file
// without a name beside the target. Made by one thread with all threads it is given, then read-only.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/convert/convert.h"
#include "cli/convert/new_types.h"
#include "cli/convert/scratch_map.h"
#include "format/model_source.h"

namespace invar {

inline constexpr const char* kMlx4 = "MLX-4";  // of --type, beside those of block_encoders()

class QuantizedSource : public ModelSource {
 public:
  // Which tensors get which type is what converted_type() says, of MLX-4 what convert_to_mlx() does; what the
  // source holds in as few bits stays, be it of a type that GGUF or MLX lacks. Experts that lie transposed
  // are turned when all of them become codes, and stay when only some could. target: the file that is to be
  // written. Errors name the tensor.
  static Result<std::unique_ptr<QuantizedSource>> make(const ModelSource& source, const std::string& target,
                                                       const QuantizeOptions& options);

  // What was done, for the digest: a function of the options.
  const std::string& change() const { return change_; }
  const Conversion& conversion() const { return conversion_; }  // without the size of a file

  SourceKind kind() const override { return source_.kind(); }
  const std::string& path() const override { return source_.path(); }
  std::string architecture() const override { return source_.architecture(); }
  const GgufFile* gguf() const override { return source_.gguf(); }
  const HfConfig* config() const override { return source_.config(); }
  Result<std::string> side_file(const std::string& name) const override { return source_.side_file(name); }
  std::vector<std::string> files() const override { return source_.files(); }
  std::string identity() const override;
  void drop_tensor_pages(std::span<const std::byte> part) const override {
    scratch_.holds(part) ? scratch_.drop(part) : source_.drop_tensor_pages(part);
  }

 private:
  QuantizedSource(const ModelSource& source, const QuantizeOptions& options);
  struct Job;
  uint64_t scale_bytes(int64_t elements) const;  // of the scales alone, and of the biases alone
  uint64_t room_for(int64_t elements, const WeightType& type) const;
  // Gives a tensor its new type and the first bytes of what is left.
  void replace(SourceTensor& tensor, const WeightType& type, std::span<std::byte>& left, Job* job);
  Status encode(const std::vector<Job>& jobs) const;

  const ModelSource& source_;
  const QuantizeOptions options_;
  std::string change_;
  Conversion conversion_;
  ScratchMap scratch_;
};

}  // namespace invar
