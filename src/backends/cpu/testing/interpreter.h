#pragma once
// For tests: the graph taken literally, node by node, one token at a time, every value of its own, through
// one kernel table. What the executor must equal bit for bit.

#include <vector>

#include "backends/cpu/testing/random_model.h"
#include "kernels/kernel_table.h"

namespace invar::test {

class Interpreter {
 public:
  Interpreter(const Model& model, const KernelTable& kernels, bool long_rope = false)
      : model_(model), k_(kernels), long_rope_(long_rope) {}

  struct Result {
    std::vector<float> logits;  // [vocab]
    uint8_t fault = 0;
  };

  Result run(int32_t token, int32_t position, Pages& pages) {
    const std::span<const KvView> kv = pages.reserve(position + 1);
    Result result;
    values_.assign(model_.graph.values.size(), {});
    for (const Node& node : model_.graph.nodes) {
      std::vector<float>& out = values_[node.out];
      out.assign(model_.graph.values[node.out].width, 0.0f);
      run_node(node, token, position, kv, out, &result.fault);
    }
    result.logits = values_[model_.graph.logits];
    if (!k_.rows.all_finite(result.logits.data(), int64_t(result.logits.size()))) result.fault = 1;
    return result;
  }

 private:
  const PackedMatrix& matrix(WeightId w) const { return model_.weights.matrices[w]; }
  const float* vector(WeightId w) const { return w == kNone ? nullptr : model_.weights.vectors[w].data(); }

  void run_node(const Node& node, int32_t token, int32_t position, std::span<const KvView> kv,
                std::vector<float>& out, uint8_t* fault) {
    const int64_t n = int64_t(out.size());
    const auto in = [&](size_t i) { return values_[node.in[i]].data(); };
    switch (node.op) {
      case Op::kEmbed:
        return k_.unpack_row(matrix(node.weight), token < matrix(node.weight).rows ? token : 0, out.data());
      case Op::kSelectRows:
        out = values_[node.in[0]];
        return;
      case Op::kAdd:
        return k_.add(in(0), in(1), n, out.data());
      case Op::kGatedSilu:
        return k_.gated_silu(in(0), in(1), n, out.data());
      case Op::kGatedGelu:
        return k_.gated_gelu(in(0), in(1), n, out.data());
      case Op::kGelu:
        return k_.unary[size_t(Unary::kGeluTanh)](in(0), n, out.data());
      case Op::kTanh:
        return k_.unary[size_t(Unary::kTanh)](in(0), n, out.data());
      case Op::kMultiply: {
        const std::span<const float> w = model_.weights.vectors[node.weight];
        const std::vector<float> wide =
            w.size() == 1 ? std::vector<float>(out.size(), w[0]) : std::vector<float>(w.begin(), w.end());
        return k_.multiply(in(0), wide.data(), n, out.data());
      }
      case Op::kAddScaled:
        return k_.add_scaled(in(0), in(1), in(2)[std::get<ColumnAttr>(node.attr).column], n, out.data());
      case Op::kMatchRms:
        return k_.match_rms(in(0), in(1), std::get<FactorAttr>(node.attr).factor, n, out.data(), fault);
      case Op::kSparsify:
        return k_.sparsify(in(0), std::get<FactorAttr>(node.attr).factor, n, out.data(), fault);
      case Op::kColumns:
        std::copy_n(in(0) + std::get<ColumnAttr>(node.attr).column, n, out.data());
        return;
      case Op::kScale:
        return k_.scale(in(0), std::get<FactorAttr>(node.attr).factor, n, out.data());
      case Op::kSoftcap:
        return k_.softcap(in(0), std::get<FactorAttr>(node.attr).factor, n, out.data());
      case Op::kLayerNorm:
        return k_.layer_norm(in(0), vector(node.weight), vector(node.bias), std::get<NormAttr>(node.attr).eps,
                             n, out.data(), fault);
      case Op::kLinear:
        return linear(matrix(node.weight), vector(node.bias), in(0), out.data(), fault);
      case Op::kRmsNorm: {
        const auto& attr = std::get<NormAttr>(node.attr);
        const int64_t size = attr.head_dim == 0 ? n : attr.head_dim;
        for (int64_t i = 0; i < n; i += size) {
          k_.rms_norm(in(0) + i, vector(node.weight), attr.eps, size, out.data() + i, fault);
        }
        return;
      }
      case Op::kRope: {
        const auto& attr = std::get<RopeAttr>(node.attr);
        const Rope& rope = model_.graph.ropes[attr.rope];
        std::vector<float> cos(rope.inv_freq.size()), sin(rope.inv_freq.size());
        const auto& freq = long_rope_ && !rope.long_inv_freq.empty() ? rope.long_inv_freq : rope.inv_freq;
        k_.rope_table(freq.data(), rope.dim, position, rope.attention_factor, rope.scaled, cos.data(),
                      sin.data());
        out = values_[node.in[0]];
        const auto rotate = rope.adjacent ? k_.rope_adjacent : k_.rope;
        return rotate(out.data(), attr.heads, attr.head_dim, rope.dim, cos.data(), sin.data());
      }
      case Op::kAttend:
        return attend(std::get<AttendAttr>(node.attr), vector(node.weight), position, kv, in(0),
                      node.in.size() > 1 ? in(1) : nullptr, node.in.size() > 1 ? in(2) : nullptr, out, fault);
      case Op::kExperts:
        return experts(node, out, fault);
    }
  }

  // The unchosen expert with the highest key, the lowest id on ties.
  static int32_t best(const std::vector<float>& keys, const std::vector<bool>& taken) {
    int32_t id = -1;
    for (int32_t e = 0; e < int32_t(keys.size()); e++)
      if (!taken[size_t(e)] && (id < 0 || keys[size_t(e)] > keys[size_t(id)])) id = e;
    return id;
  }

  void experts(const Node& node, std::vector<float>& out, uint8_t* fault) {
    const auto& attr = std::get<ExpertsAttr>(node.attr);
    const std::vector<ExpertWeights>& set = model_.graph.expert_sets[attr.set];
    const std::vector<float>&x = values_[node.in[0]], &scores = values_[node.in[1]];
    const size_t count = set.size();
    if (!k_.rows.all_finite(scores.data(), int64_t(count))) *fault = 1;
    std::vector<float> p = scores, keys = scores;
    if (attr.routing == Routing::kSoftmax) k_.rows.softmax(scores.data(), int64_t(count), p.data());
    if (attr.routing == Routing::kSigmoid)
      k_.unary[size_t(Unary::kSigmoid)](scores.data(), int64_t(count), p.data());
    if (const float* correction = vector(node.bias))
      for (size_t e = 0; e < count; e++)
        keys[e] = p[e] + correction[e];
    std::vector<bool> taken(count);
    std::vector<int32_t> ids;
    std::vector<float> chosen;
    for (int32_t i = 0; i < attr.chosen; i++) {
      ids.push_back(best(keys, taken));
      taken[size_t(ids.back())] = true;
      chosen.push_back(p[size_t(ids.back())]);
    }
    if (attr.routing == Routing::kSoftmaxOfChosen) k_.rows.softmax(chosen.data(), attr.chosen, chosen.data());
    float sum = 0;
    for (const float w : chosen)
      sum += w;
    sum += attr.sum_floor;
    std::vector<float> weights(count);  // 0: not chosen
    std::vector<bool> done(count, true);
    for (size_t i = 0; i < ids.size(); i++) {
      float w = attr.renormalize ? chosen[i] / sum : chosen[i];
      w *= attr.scale;
      if (const float* scale = vector(node.weight)) w *= scale[ids[i]];
      weights[size_t(ids[i])] = w;
      done[size_t(ids[i])] = false;
    }
    for (size_t i = 0; i < ids.size(); i++) {
      const int32_t e = best(weights, done);
      done[size_t(e)] = true;
      const std::vector<float> y = expert(set[size_t(e)], attr, x, fault);
      k_.add_scaled(out.data(), y.data(), weights[size_t(e)], int64_t(out.size()), out.data());
    }
    if (node.in.size() < 3) return;
    const float* shared = values_[node.in[2]].data();
    if (node.in.size() == 3) return k_.add(out.data(), shared, int64_t(out.size()), out.data());
    float gate = 0;
    k_.unary[size_t(Unary::kSigmoid)](values_[node.in[3]].data(), 1, &gate);
    k_.add_scaled(out.data(), shared, gate, int64_t(out.size()), out.data());
  }

  std::vector<float> expert(const ExpertWeights& e, const ExpertsAttr& attr, const std::vector<float>& x,
                            uint8_t* fault) {
    const int64_t ffn = matrix(e.gate).rows;
    std::vector<float> gate(size_t(ffn), 0.0f), up = gate, y(x.size());
    linear(matrix(e.gate), vector(e.gate_bias), x.data(), gate.data(), fault);
    linear(matrix(e.up), vector(e.up_bias), x.data(), up.data(), fault);
    switch (attr.unit) {
      case GatedUnit::kSilu:
        k_.gated_silu(gate.data(), up.data(), ffn, gate.data());
        break;
      case GatedUnit::kGelu:
        k_.gated_gelu(gate.data(), up.data(), ffn, gate.data());
        break;
      case GatedUnit::kClampedSilu:
        k_.gated_clamped(gate.data(), up.data(), attr.alpha, attr.limit, ffn, gate.data());
        break;
    }
    linear(matrix(e.down), vector(e.down_bias), gate.data(), y.data(), fault);
    return y;
  }

  void linear(const PackedMatrix& w, const float* bias, const float* x, float* y, uint8_t* fault) {
    Buffer quantized(quantized_row_bytes(w.cols));
    std::vector<float> row(x, x + w.cols);
    for (int64_t k = 0; w.form->gathered && k < w.cols; k++)
      row[size_t(k)] = x[w.columns()[k]];
    if (!is_float(*w.form)) k_.quantize_row(row.data(), w.cols, quantized.data(), fault);
    const LinearInput in{1, x, w.cols, quantized.data(), quantized.size()};
    k_.linear(w, 0, tile_count(w.rows), in, {y, w.rows, bias, false});
  }

  void attend(const AttendAttr& attr, const float* sinks, int32_t position, std::span<const KvView> views,
              const float* q, const float* k, const float* v, std::vector<float>& out, uint8_t* fault) {
    const KvView& kv = views[attr.group];
    const int codec = kv.layout->codec->index;
    if (k != nullptr) k_.kv_write[codec](kv, attr.layer, position, k, v, fault);
    Buffer scratch(k_.attend_scratch(1, attr.heads / attr.kv_heads, attr.head_dim));
    const int64_t n = int64_t(out.size());
    const AttendArgs args{q,          n,     out.data(),   n,    1, position, attr.heads, attr.scale, &kv,
                          attr.layer, fault, attr.softcap, sinks};
    for (int head = 0; head < attr.kv_heads; head++)
      k_.attend[codec](args, head, 0, 1, scratch.data());
  }

  const Model& model_;
  const KernelTable& k_;
  bool long_rope_;
  std::vector<std::vector<float>> values_;
};

}  // namespace invar::test
