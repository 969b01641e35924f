#pragma once
// GraphBuilder: records a family's mathematics line by line. Each call appends one node and returns its
// value.

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace invar {

// A part of a tensor that a file stores as one; the fields of Weight.
struct FusedPart {
  std::string tensor = {};
  int64_t first_row = 0, rows = 0;
  int32_t row_step = 1, experts = 0, expert = 0;
  bool transposed = false;
};

class GraphBuilder {
 public:
  WeightId matrix(std::string name, int64_t rows, int64_t cols, int rotary_heads = 0, FusedPart part = {});
  // add_one: the file stores the elements less one.
  WeightId vector(std::string name, int64_t size, int rotary_heads = 0, bool add_one = false,
                  FusedPart part = {});
  int rope(Rope rope);
  int kv_group(KvGroup group);  // returns its number; layers are counted by attend()

  ValueId embed(const std::string& site, WeightId table);
  // weight kNone: none.
  ValueId rms_norm(const std::string& site, ValueId x, WeightId weight, float eps, int head_dim = 0);
  ValueId layer_norm(const std::string& site, ValueId x, WeightId weight, WeightId bias, float eps);
  ValueId linear(const std::string& site, ValueId x, WeightId weight, WeightId bias = kNone);
  ValueId rotate(const std::string& site, ValueId x, int rope, int heads, int head_dim);
  ValueId attend(const std::string& site, ValueId q, ValueId k, ValueId v, AttendAttr attr,
                 WeightId sinks = kNone);
  // Attends with q to what the attention node that gave `donor` wrote.
  ValueId borrow(const std::string& site, ValueId q, ValueId donor);
  ValueId add(const std::string& site, ValueId x, ValueId y);
  ValueId gated_silu(const std::string& site, ValueId gate, ValueId up);
  ValueId gated_gelu(const std::string& site, ValueId gate, ValueId up);
  ValueId gelu(const std::string& site, ValueId x);
  ValueId tanh(const std::string& site, ValueId x);
  ValueId scale(const std::string& site, ValueId x, float factor);
  ValueId multiply(const std::string& site, ValueId x, WeightId weight);
  ValueId add_scaled(const std::string& site, ValueId x, ValueId y, ValueId factors, int column);
  ValueId match_rms(const std::string& site, ValueId x, ValueId like, float least_mean_square);
  ValueId sparsify(const std::string& site, ValueId x, float deviations);
  ValueId columns(const std::string& site, ValueId x, int first, int count);
  ValueId softcap(const std::string& site, ValueId x, float cap);
  // in, scale, correction: Op::kExperts. attr.set is filled in.
  ValueId experts(const std::string& site, std::vector<ValueId> in, std::vector<ExpertWeights> set,
                  ExpertsAttr attr, WeightId scale = kNone, WeightId correction = kNone);
  ValueId select_logit_rows(const std::string& site, ValueId x);

  Result<Graph> finish(ValueId logits, int32_t vocab) &&;  // validates

 private:
  ValueId map(Op op, const std::string& site, ValueId x, Attr attr);
  ValueId append(Op op, const std::string& site, std::vector<ValueId> in, int32_t width, Rows rows, Attr attr,
                 WeightId weight = kNone, WeightId bias = kNone);
  WeightId declare(Weight weight);
  Graph graph_;
  std::unordered_map<std::string, WeightId> by_name_;
};

}  // namespace invar
