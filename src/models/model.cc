#include "models/model.h"

#include <utility>

#include "base/quote.h"
#include "format/gguf.h"
#include "format/packed_weights.h"
#include "models/load_plan.h"

namespace invar {

struct Model::Impl {
  std::shared_ptr<const ModelSource> source;
  ModelInfo info;
  Graph graph;
  std::unique_ptr<PackedWeights> packed;
  WeightSet weights;
  std::string identity;
};

namespace {

std::string display_name(const ModelSource& source) {
  if (source.gguf() != nullptr) {
    const auto name = source.gguf()->get_string("general.name");
    if (name.ok() && name->has_value() && !(*name)->empty()) return printable(**name, 100);
  }
  return source.name();
}

ModelInfo describe(const ModelSource& source, const Family& family, const ModelConfig& c,
                   const Graph& graph) {
  ModelInfo info;
  info.family = family.name;
  info.name = display_name(source);
  info.vocab = c.vocab;
  info.hidden = c.hidden;
  info.layers = c.layers;
  info.heads = c.heads;
  info.kv_heads = c.kv_heads;
  info.head_dim = c.head_dim;
  info.ffn = c.ffn;
  info.context_length = c.context_length;
  info.tied_head = c.tied_head;
  for (const Weight& w : graph.weights)
    info.parameters += w.rows * w.cols;
  return info;
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::load(const std::string& path, const LoadOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelSource> source, ModelSource::open(path));
  return load(std::shared_ptr<const ModelSource>(std::move(source)), options);
}

Result<std::shared_ptr<const Model>> Model::load(std::shared_ptr<const ModelSource> opened,
                                                 const LoadOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->source = std::move(opened);
  const ModelSource& source = *impl->source;
  ASSIGN_OR_RETURN(LoadPlan plan, plan_load(source, options.rope));
  impl->graph = std::move(plan.graph);
  impl->info = describe(source, *plan.family, plan.config, impl->graph);
  impl->identity = source.identity();

  const std::string folder = options.cache_dir.empty() ? "" : options.cache_dir + "/packed";
  ASSIGN_OR_RETURN(
      impl->packed,
      PackedWeights::open(source, plan.entries,
                          {.folder = folder, .threads = options.threads, .progress = options.progress}));
  impl->weights.matrices.resize(impl->graph.weights.size());
  impl->weights.vectors.resize(impl->graph.weights.size());
  for (size_t i = 0; i < impl->graph.weights.size(); ++i) {
    if (impl->graph.weights[i].kind == Weight::Kind::kMatrix) {
      impl->weights.matrices[i] = impl->packed->matrix(i);
    } else {
      impl->weights.vectors[i] = impl->packed->vector(i);
    }
  }
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

const ModelInfo& Model::info() const {
  return impl_->info;
}
const Graph& Model::graph() const {
  return impl_->graph;
}
const WeightSet& Model::weights() const {
  return impl_->weights;
}
const ModelSource& Model::source() const {
  return *impl_->source;
}
size_t Model::packed_bytes() const {
  return impl_->packed->bytes();
}
bool Model::packed_in_memory() const {
  return impl_->packed->in_memory();
}
bool Model::damaged() const {
  return impl_->packed->damaged();
}
Status Model::wait_verified() const {
  return impl_->packed->wait_verified();
}
std::string Model::identity() const {
  return impl_->identity;
}

}  // namespace invar
