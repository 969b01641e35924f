#pragma once
// Loads a model and runs sequences through the engine, stepping by hand: what the tests over whole models
// share. Errors throw, which fails the test.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/model.h"

namespace invar {

struct RunnerOptions {
  std::string isa;  // "" = the best
  std::string kv = "f32";
  int32_t prefill_chunk = 0;
  int threads = 2;
};

class ModelRunner {
 public:
  static std::shared_ptr<const Model> load(const std::string& path) {
    LoadOptions options;  // no cache folder: packed in memory
    options.progress = false;
    auto model = Model::load(path, options);
    if (!model.ok()) throw std::runtime_error(model.status().message());
    return *model;
  }

  ModelRunner(std::shared_ptr<const Model> model, const RunnerOptions& options)
      : vocab_(model->info().vocab) {
    auto backend = make_cpu_backend({.threads = options.threads, .isa = options.isa});
    if (!backend.ok()) throw std::runtime_error(backend.status().message());
    EngineOptions engine_options;
    engine_options.kv = options.kv;
    engine_options.prefill_chunk = options.prefill_chunk;
    auto engine = Engine::create(std::move(model), std::move(*backend), engine_options);
    if (!engine.ok()) throw std::runtime_error(engine.status().message());
    engine_ = std::move(*engine);
  }

  int32_t vocab() const { return vocab_; }

  // Raw logits of every position, [tokens, vocab].
  std::vector<float> logits(const std::vector<int32_t>& ids) {
    std::vector<float> all;
    GenerateRequest request;
    request.prompt = ids;
    request.all_prompt_logits = true;
    request.on_logits = [&](int32_t position, std::span<const float> row) {
      if (all.size() != size_t(position) * vocab_) throw std::runtime_error("logits came out of order");
      all.insert(all.end(), row.begin(), row.end());
    };
    run(std::move(request));
    if (all.size() != ids.size() * vocab_) throw std::runtime_error("logits are missing");
    return all;
  }

  // The n most likely tokens one after another.
  std::vector<int32_t> greedy(const std::vector<int32_t>& ids, int32_t n) {
    GenerateRequest request;
    request.prompt = ids;
    request.max_tokens = n;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    return run(std::move(request));
  }

 private:
  std::vector<int32_t> run(GenerateRequest request) {
    auto stream = engine_->submit(std::move(request));
    if (!stream.ok()) throw std::runtime_error(stream.status().message());
    while (engine_->step()) {
    }
    std::vector<int32_t> tokens;
    while (const std::optional<TokenEvent> event = (*stream)->try_next()) {
      if (event->finish == FinishReason::kError) throw std::runtime_error(event->error.message());
      if (event->token) tokens.push_back(*event->token);
      if (event->finish != FinishReason::kNone) return tokens;
    }
    throw std::runtime_error("the engine went idle before the request ended");
  }

  int32_t vocab_;
  std::unique_ptr<Engine> engine_;
};

// Raw logits of 60 fixed tokens.
inline std::vector<float> logits_of(const std::string& path) {
  const auto model = ModelRunner::load(path);
  std::vector<int32_t> ids;
  for (int i = 0; i < 60; ++i)
    ids.push_back(5 + i * 37 % (std::min(model->info().vocab, 300) - 10));
  return ModelRunner(model, {}).logits(ids);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace invar
