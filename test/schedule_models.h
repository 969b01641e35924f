#pragma once
// The models that random schedules run on, and what each of their requests answers alone: on one thread, with
// the whole prompt in one step, without a prefix cache and with nobody else. Lone answers are kept; a model
// may be asked from several threads.

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/testing/engine_fixture.h"
#include "format/test_files.h"
#include "models/model.h"
#include "oracle_models.h"
#include "schedule_requests.h"

namespace invar {

struct ScheduleModelRow {
  const char* name;
  const char* path;    // below oracles/; nullptr = the fake backend, whose logits tell every slot they read
  int32_t window = 0;  // of its windowed layers, instead of the file's
};

// One of every family; quantized weights; and since a page has 64 positions, windows on both sides of one and
// of two.
inline std::vector<ScheduleModelRow> schedule_models() {
  std::vector<ScheduleModelRow> rows;
  for (const OracleModel& model : family_models())
    rows.push_back({model.family, model.path});
  for (const ScheduleModelRow& row : std::initializer_list<ScheduleModelRow>{
           {"llama_q4_0", "gguf/quant/llama-q256-Q4_0.gguf"},
           {"qwen2_window_13", "models/qwen2-swa"},
           {"qwen2_window_63", "models/qwen2-swa", 63},
           {"qwen2_window_64", "models/qwen2-swa", 64},
           {"qwen2_window_65", "models/qwen2-swa", 65},
           {"qwen2_window_129", "models/qwen2-swa", 129},
           {"fake", nullptr},
           {"fake_window_50", nullptr, 50},
           {"fake_window_1", nullptr, 1},
       })
    rows.push_back(row);
  return rows;
}

inline std::shared_ptr<const Model> load_oracle(const std::string& path) {
  LoadOptions options;  // no cache folder: packed in memory
  options.progress = false;
  auto model = Model::load(path, options);
  if (!model.ok()) throw std::runtime_error(model.status().message());
  return *model;
}

// A model with another sliding window, which no weight depends on.
inline std::shared_ptr<const Model> load_windowed(const std::string& folder, int32_t window) {
  const TemporaryFolder copy;
  for (const char* file : {"/model.safetensors", "/config.json"})
    std::filesystem::copy(folder + file, copy.path() + file);
  const auto bytes = read_file(folder + "/config.json");
  std::string config(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string key = "\"sliding_window\": ";
  const size_t at = config.find(key);
  if (at == std::string::npos) throw std::runtime_error(folder + " has no sliding window");
  const size_t from = at + key.size();
  config.replace(from, config.find(',', from) - from, std::to_string(window));
  std::filesystem::remove(copy.path("config.json"));
  write_file(copy.path("config.json"), config);
  return load_oracle(copy.path());
}

class ScheduleModel {
 public:
  explicit ScheduleModel(const ScheduleModelRow& row) : row_(row) {
    if (row.path == nullptr) {
      graph_ = fake_graph(row.window);
      return;
    }
    const std::string path = std::string(INVAR_TEST_DATA) + "/oracles/" + row.path;
    model_ = row.window > 0 ? load_windowed(path, row.window) : load_oracle(path);
  }

  const char* name() const { return row_.name; }
  const Graph& graph() const { return model_ != nullptr ? model_->graph() : graph_; }
  int32_t vocab() const { return graph().vocab; }
  bool fake() const { return model_ == nullptr; }
  // What both backends of this table can do.
  bool supports(const KvCodec& codec) const { return !fake() || std::string_view(codec.name) != "bf16"; }

  std::unique_ptr<Engine> engine(const EngineOptions& options, int threads) const {
    auto created = fake() ? fake_engine(options) : cpu_engine(options, threads);
    if (!created.ok()) throw std::runtime_error(created.status().message());
    return std::move(*created);
  }

  // The bytes that hold one sequence of the context, and so the smallest pool.
  uint64_t bytes_of_one(const EngineOptions& options) const {
    uint64_t bytes = 0;
    for (const KvGroup& group : graph().kv_groups) {
      const KvLayout layout{find_kv_codec(options.kv), group.layers, group.kv_heads, group.head_dim};
      const KvPlacement placement{.keep = group.window};
      bytes += uint64_t(placement.peak_pages(options.context, options.max_step_tokens)) * layout.page_bytes();
    }
    return bytes;
  }

  // What a choice of request `number` answers alone. The reference stays valid.
  const Answer& alone(uint64_t number, int32_t choice, const std::string& kv) {
    const std::lock_guard lock(mutex_);
    auto& answer = alone_[{number, choice, kv}];
    if (answer == nullptr) answer = run_alone(schedule_request(number, vocab()).make(choice), kv);
    return *answer;
  }

 private:
  Result<std::unique_ptr<Engine>> fake_engine(const EngineOptions& options) const {
    return Engine::create(EngineModel{&graph_, &weights_, 1024, 0, nullptr},
                          std::make_unique<FakeBackend>(std::make_shared<FakeScript>()), options);
  }
  Result<std::unique_ptr<Engine>> cpu_engine(const EngineOptions& options, int threads) const {
    ASSIGN_OR_RETURN(auto backend, make_cpu_backend({.threads = threads, .isa = ""}));
    return Engine::create(EngineModel{&model_->graph(), &model_->weights(), kTestedContext, 0, model_},
                          std::move(backend), options);
  }
  std::unique_ptr<Answer> run_alone(GenerateRequest request, const std::string& kv) {
    std::unique_ptr<Engine>& engine = lone_engines_[kv];
    if (engine == nullptr) {
      EngineOptions options;
      options.kv = kv;
      options.context = 512;
      options.prefix_cache_bytes = 0;
      options.max_step_tokens = options.max_logit_rows = 512;
      options.max_batch = 1;
      options.memory_bytes = bytes_of_one(options);
      engine = this->engine(options, 1);
    }
    auto answer = std::make_unique<Answer>();
    request.on_logits = hash_logits_into(&answer->logits);
    auto stream = engine->submit(std::move(request));
    if (!stream.ok()) throw std::runtime_error(stream.status().message());
    while (engine->step()) {
    }
    if (!collect(**stream, answer.get())) throw std::runtime_error("a lone request did not end");
    return answer;
  }

  ScheduleModelRow row_;
  std::shared_ptr<const Model> model_;
  Graph graph_;  // of the fake backend
  WeightSet weights_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Engine>> lone_engines_;  // by KV codec
  std::map<std::tuple<uint64_t, int32_t, std::string>, std::unique_ptr<Answer>> alone_;
};

}  // namespace invar
