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
        return attend(std::get<AttendAttr>(node.attr), position, kv, in(0),
                      node.in.size() > 1 ? in(1) : nullptr, node.in.size() > 1 ? in(2) : nullptr, out, fault);
    }
  }

  void linear(const PackedMatrix& w, const float* bias, const float* x, float* y, uint8_t* fault) {
    Buffer quantized(quantized_row_bytes(w.cols));
    if (!is_float(*w.form)) k_.quantize_row(x, w.cols, quantized.data(), fault);
    const LinearInput in{1, x, w.cols, quantized.data(), quantized.size()};
    k_.linear(w, 0, tile_count(w.rows), in, {y, w.rows, bias, false});
  }

  void attend(const AttendAttr& attr, int32_t position, std::span<const KvView> views, const float* q,
              const float* k, const float* v, std::vector<float>& out, uint8_t* fault) {
    const KvView& kv = views[attr.group];
    const int codec = kv.layout->codec->index;
    if (k != nullptr) k_.kv_write[codec](kv, attr.layer, position, k, v, fault);
    Buffer scratch(k_.attend_scratch(1, attr.heads / attr.kv_heads, attr.head_dim));
    const int64_t n = int64_t(out.size());
    const AttendArgs args{q,          n,          out.data(), n,          1,     position,
                          attr.heads, attr.scale, &kv,        attr.layer, fault, attr.softcap};
    for (int head = 0; head < attr.kv_heads; head++)
      k_.attend[codec](args, head, 0, 1, scratch.data());
  }

  const Model& model_;
  const KernelTable& k_;
  bool long_rope_;
  std::vector<std::vector<float>> values_;
};

}  // namespace invar::test
