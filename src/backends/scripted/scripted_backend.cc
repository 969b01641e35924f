#include "backends/scripted/scripted_backend.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace invar {
namespace {

class ScriptedExecutable final : public Executable {
 public:
  ScriptedExecutable(Buffer logits, int32_t vocab, int32_t max_tokens)
      : logits_(std::move(logits)), vocab_(size_t(vocab)), faults_(size_t(max_tokens)) {}

  StepOutputs run(const StepInputs& inputs) override {
    return {{logits_.as<float>(), inputs.logit_rows.size() * vocab_},
            std::span<const uint8_t>(faults_).first(inputs.tokens.size())};
  }
  size_t scratch_bytes() const override {
    return 0;
  }  // memory that is only read stays the system's zero page

 private:
  Buffer logits_;  // f32 [max_logit_rows, vocab], all zero
  size_t vocab_;
  std::vector<uint8_t> faults_;  // [max_tokens], all zero
};

class ScriptedBackend final : public Backend {
 public:
  std::string name() const override { return "scripted"; }
  bool supports(const KvCodec&) const override { return true; }
  const RowKernels& row_kernels() const override { return kernels_.rows; }

  Result<std::unique_ptr<Executable>> compile(const Graph& graph, const WeightSet&,
                                              const ExecutableLimits& limits) override {
    const size_t floats = size_t(limits.max_logit_rows) * size_t(graph.vocab);
    ASSIGN_OR_RETURN(Buffer logits, Buffer::allocate(floats * sizeof(float)));
    return std::unique_ptr<Executable>(
        std::make_unique<ScriptedExecutable>(std::move(logits), graph.vocab, limits.max_tokens));
  }

 private:
  const KernelTable& kernels_ = *choose_kernels("");
};

}  // namespace

std::shared_ptr<const ScriptedModel> make_scripted_model(int32_t vocab) {
  CHECK(vocab > 0);
  auto model = std::make_shared<ScriptedModel>();
  model->graph.vocab = vocab;
  model->graph.kv_groups.push_back({.layers = 1, .kv_heads = 1, .head_dim = 1});
  return model;
}

std::unique_ptr<Backend> make_scripted_backend() {
  return std::make_unique<ScriptedBackend>();
}

}  // namespace invar
