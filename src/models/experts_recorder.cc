// The lines of DenseRecorder for layers with a mixture of experts, whatever way a file keeps the matrices.

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "models/dense_recorder.h"

namespace invar {
namespace {

struct Part {
  std::string tensor;  // without ".weight" or ".bias"
  FusedPart part;
};

// Where expert `expert` has its `matrix`, one of names.gate, up and down.
Part find_part(const ExpertsConfig& c, std::string_view matrix, int32_t expert, int64_t rows) {
  const ExpertNames& names = c.names;
  Part p{fmt::format("{}.{}", names.experts, matrix), {.rows = rows, .experts = c.count, .expert = expert}};
  const bool gate = matrix == names.gate, up = matrix == names.up;
  p.part.transposed = c.storage == ExpertStorage::kTransposed;
  if (c.storage == ExpertStorage::kStacked || !(gate || up)) return p;
  p.tensor = fmt::format("{}.gate_up_proj", names.experts);
  p.part.rows = 2 * rows;
  if (c.storage == ExpertStorage::kFused) {
    p.part.first_row = up ? rows : 0;
  } else {
    p.part.first_row = up ? 1 : 0;
    p.part.row_step = 2;
  }
  return p;
}

}  // namespace

WeightId DenseRecorder::expert_matrix(const char* matrix, int32_t expert) {
  const ExpertsConfig& c = config_.experts;
  const bool down = std::string_view(matrix) == c.names.down;
  const int64_t rows = down ? config_.hidden : c.ffn, cols = down ? c.ffn : config_.hidden;
  if (c.storage == ExpertStorage::kSeparate)
    return builder_.matrix(fmt::format("{}{}.{}.{}.weight", weight_, c.names.experts, expert, matrix), rows,
                           cols);
  Part p = find_part(c, matrix, expert, rows);
  p.part.tensor = weight_ + p.tensor + (c.storage == ExpertStorage::kStacked ? ".weight" : "");
  return builder_.matrix(fmt::format("{}{}.{}[{}]", weight_, c.names.experts, matrix, expert), rows, cols, 0,
                         std::move(p.part));
}

WeightId DenseRecorder::expert_bias(const char* matrix, int32_t expert) {
  const ExpertsConfig& c = config_.experts;
  if (!c.biases) return kNone;
  const int64_t rows = std::string_view(matrix) == c.names.down ? config_.hidden : c.ffn;
  if (c.storage == ExpertStorage::kSeparate)
    return builder_.vector(fmt::format("{}{}.{}.{}.bias", weight_, c.names.experts, expert, matrix), rows);
  Part p = find_part(c, matrix, expert, rows);
  p.part.transposed = false;
  p.part.tensor = weight_ + p.tensor + (c.storage == ExpertStorage::kStacked ? ".bias" : "_bias");
  return builder_.vector(fmt::format("{}{}.{}_bias[{}]", weight_, c.names.experts, matrix, expert), rows, 0,
                         false, std::move(p.part));
}

std::vector<ExpertWeights> DenseRecorder::expert_set() {
  const ExpertNames& names = config_.experts.names;
  std::vector<ExpertWeights> set;
  for (int32_t e = 0; e < config_.experts.count; ++e) {
    set.push_back({expert_matrix(names.gate, e), expert_matrix(names.up, e), expert_matrix(names.down, e),
                   expert_bias(names.gate, e), expert_bias(names.up, e), expert_bias(names.down, e)});
  }
  return set;
}

ValueId DenseRecorder::experts(const std::string& site, ValueId x, ValueId scores, const std::string& scale) {
  const ExpertsConfig& c = config_.experts;
  return builder_.experts(site_ + site, {x, scores}, expert_set(), c.attr,
                          builder_.vector(weight_ + scale, c.count));
}

ValueId DenseRecorder::network(ValueId x) {
  const ExpertsConfig& c = config_.experts;
  const ExpertNames& names = c.names;
  const int64_t hidden = config_.hidden;
  const auto dense = [&](const std::string& site, const std::string& weight, int64_t ffn) {
    const ValueId gate = linear(site + ".gate", x, weight + ".gate_proj", ffn, hidden, config_.mlp_bias);
    const ValueId up = linear(site + ".up", x, weight + ".up_proj", ffn, hidden, config_.mlp_bias);
    const ValueId y = gated_silu(site + ".act", gate, up);
    return linear(site + ".down", y, weight + ".down_proj", hidden, ffn, config_.mlp_bias);
  };
  if (c.count == 0 || !c.layers[layer_]) return dense("mlp", "mlp", config_.ffn);
  std::vector<ValueId> in = {x, linear("mlp.router", x, names.router, c.count, hidden, c.biases)};
  if (c.shared_ffn > 0) in.push_back(dense("mlp.shared", names.shared, c.shared_ffn));
  if (c.shared_gate) in.push_back(linear("mlp.shared_gate", x, names.shared_gate, 1, hidden));
  const WeightId correction =
      c.correction
          ? builder_.vector(fmt::format("{}{}.e_score_correction_bias", weight_, names.router), c.count)
          : kNone;
  return builder_.experts(site_ + "mlp.experts", std::move(in), expert_set(), c.attr, kNone, correction);
}

}  // namespace invar
