#pragma once
// Model: one loaded model file: its graph, its packed weights, its metadata. Immutable after load and shared
// by reference count (the engine, the command line and the text layer hold it). load() may pack weights,
// which takes time and shows progress; everything a later run needs is then in the cache.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"
#include "graph/graph.h"
#include "graph/weight_set.h"
#include "models/rope_override.h"

namespace invar {

struct ModelInfo {
  std::string family;  // "llama": the row of the family table
  std::string name;    // from the file, or its base name
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;
  int32_t context_length = 0;  // trained positions
  int64_t parameters = 0;
  bool tied_head = false;
};

struct LoadOptions {
  std::string cache_dir;  // packed weights go to cache_dir/packed; empty: pack in memory
  int threads = 0;        // for packing; 0 = every core
  bool progress = true;
  RopeOverride rope;
};

class Model {
 public:
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const LoadOptions& options);
  static Result<std::shared_ptr<const Model>> load(std::shared_ptr<const ModelSource> source,
                                                   const LoadOptions& options);
  ~Model();

  const ModelInfo& info() const;
  const Graph& graph() const;
  const WeightSet& weights() const;
  const ModelSource& source() const;  // metadata: tokenizer, chat template, generation defaults
  size_t packed_bytes() const;
  bool packed_in_memory() const;  // no usable cache: weights live in anonymous memory
  // Weights of a large file are compared with their checksums while they are used. damaged(): some were found
  // to be wrong. wait_verified(): the outcome, of whoever is about to end; from one thread.
  bool damaged() const;
  Status wait_verified() const;
  std::string identity() const;  // hex digest of file identity, for cache keys

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar
