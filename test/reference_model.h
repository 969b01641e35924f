#pragma once
// ReferenceModel: the forward pass of a model of the families llama, qwen3 and gemma3 (plain rope) in
// double precision with dense weights, written from the mathematics and sharing nothing with the engine but
// the reading of blocks. It fills in the positions that the stored goldens leave out and is itself checked
// against them. Slow.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "block_values.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/model_source.h"

namespace invar {

// A tensor as the fp32 values of the reference dequantization.
inline std::vector<double> dense(const SourceTensor& t) {
  if (t.type->form == nullptr) throw std::runtime_error(std::string("no dense form of ") + t.type->name);
  const int64_t rows = t.shape.size() > 1 ? t.shape[0] : 1;
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) {
    const StoredRow row = stored_row(t, r);
    out.resize(out.size() + row.code.size());
    double* last = out.data() + out.size() - row.code.size();
    for (size_t k = 0; k < row.code.size(); ++k)
      last[row.column(k)] = row.value(k);
  }
  return out;
}

class ReferenceModel {
 public:
  explicit ReferenceModel(const ModelSource& source) : source_(source) {
    arch_ = source.architecture();
    gemma_ = arch_ == "gemma3";
    if (arch_ != "llama" && arch_ != "qwen3" && !gemma_)
      throw std::runtime_error("no reference for " + arch_);
    if (source.find("rope_freqs.weight")) throw std::runtime_error("no reference for scaled rope");
    interleaved_ = source.gguf() != nullptr && arch_ == "llama";
    source.gguf() != nullptr ? read(*source.gguf()) : read(*source.config());
  }

  // [tokens, vocab]
  std::vector<double> logits(std::span<const int32_t> ids) const {
    const size_t n = ids.size();
    const std::vector<double> embedding = weight("model.embed_tokens.weight");
    std::vector<double> x;
    for (const int32_t id : ids)
      x.insert(x.end(), embedding.begin() + id * hidden_, embedding.begin() + (id + 1) * hidden_);
    if (gemma_)
      for (double& e : x)
        e *= std::sqrt(double(hidden_));
    for (int layer = 0; layer < layers_; ++layer) {
      const std::string p = "model.layers." + std::to_string(layer) + ".";
      std::vector<double> h = norm(x, weight(p + "input_layernorm.weight"));
      std::vector<double> q = linear(h, head_rows(p + "self_attn.q_proj.weight", heads_), n);
      std::vector<double> k = linear(h, head_rows(p + "self_attn.k_proj.weight", kv_heads_), n);
      const std::vector<double> v = linear(h, weight(p + "self_attn.v_proj.weight"), n);
      if (find(p + "self_attn.q_norm.weight")) {
        q = norm(q, weight(p + "self_attn.q_norm.weight"));
        k = norm(k, weight(p + "self_attn.k_norm.weight"));
      }
      rotate(q, heads_, n);
      rotate(k, kv_heads_, n);
      const std::vector<double> o = linear(attention(q, k, v, n), weight(p + "self_attn.o_proj.weight"), n);
      add(x, gemma_ ? norm(o, weight(p + "post_attention_layernorm.weight")) : o);
      h = norm(x,
               weight(p + (gemma_ ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight")));
      std::vector<double> gate = linear(h, weight(p + "mlp.gate_proj.weight"), n);
      const std::vector<double> up = linear(h, weight(p + "mlp.up_proj.weight"), n);
      for (size_t i = 0; i < gate.size(); ++i)
        gate[i] = gate[i] / (1 + std::exp(-(gemma_ ? gelu_argument(gate[i]) : gate[i]))) * up[i];
      const std::vector<double> y = linear(gate, weight(p + "mlp.down_proj.weight"), n);
      add(x, gemma_ ? norm(y, weight(p + "post_feedforward_layernorm.weight")) : y);
    }
    const std::vector<double> h = norm(x, weight("model.norm.weight"));
    return linear(h, find("lm_head.weight") ? weight("lm_head.weight") : embedding, n);
  }

 private:
  template <class T>
  static T get(const Result<std::optional<T>>& r) {
    if (!r.ok()) throw std::runtime_error(r.status().message());
    if (!*r) throw std::runtime_error("a key is missing");
    return **r;
  }
  void read(const GgufFile& file) {
    const auto u32 = [&](const char* key) { return int(get<uint32_t>(file.get_u32(arch_ + "." + key))); };
    hidden_ = u32("embedding_length");
    layers_ = u32("block_count");
    heads_ = u32("attention.head_count");
    kv_heads_ = u32("attention.head_count_kv");
    const auto key = file.get_u32(arch_ + ".attention.key_length");
    dim_ = key.ok() && *key ? int(**key) : hidden_ / heads_;
    eps_ = get<float>(file.get_f32(arch_ + ".attention.layer_norm_rms_epsilon"));
    base_ = get<float>(file.get_f32(arch_ + ".rope.freq_base"));
    if (!gemma_) return;
    if (layers_ > 5) throw std::runtime_error("no reference for layers that see everything");
    window_ = u32("attention.sliding_window");
    base_ = get<float>(file.get_f32(arch_ + ".rope.freq_base_swa"));
  }
  void read(const HfConfig& config) {
    const auto number = [&](const char* key) { return int(get<int64_t>(config.get_int(key))); };
    hidden_ = number("hidden_size");
    layers_ = number("num_hidden_layers");
    heads_ = number("num_attention_heads");
    kv_heads_ = number("num_key_value_heads");
    dim_ = number("head_dim");
    eps_ = float(get<double>(config.get_double("rms_norm_eps")));
    const auto base = config.get_double("rope_theta");
    base_ = base.ok() && *base ? **base : get<double>(config.get_double("rope_parameters.rope_theta"));
  }
  const SourceTensor* find(const std::string& name) const { return source_.find(name); }
  std::vector<double> weight(const std::string& name) const {
    const SourceTensor* t = find(name);
    if (t == nullptr) throw std::runtime_error(name + " is missing");
    return dense(*t);
  }
  // q and k projections of llama files: the converter stores row j * dim/2 + i of a head as row 2i + j.
  std::vector<double> head_rows(const std::string& name, int heads) const {
    const std::vector<double> stored = weight(name);
    if (!interleaved_) return stored;
    std::vector<double> rows(stored.size());
    for (int r = 0; r < heads * dim_; ++r) {
      const int head = r / dim_, j = r % dim_ / (dim_ / 2), i = r % (dim_ / 2);
      std::copy_n(&stored[size_t(head * dim_ + 2 * i + j) * hidden_], hidden_, &rows[size_t(r) * hidden_]);
    }
    return rows;
  }

  // x [rows, k] times w [n, k] transposed.
  static std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w, size_t rows) {
    const size_t k = x.size() / rows, n = w.size() / k;
    std::vector<double> y(rows * n);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < n; ++c) {
        double sum = 0;
        for (size_t i = 0; i < k; ++i)
          sum += x[r * k + i] * w[c * k + i];
        y[r * n + c] = sum;
      }
    }
    return y;
  }
  std::vector<double> norm(std::vector<double> x, const std::vector<double>& w) const {
    for (size_t at = 0; at < x.size(); at += w.size()) {
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i)
        sum += x[at + i] * x[at + i];
      const double r = 1 / std::sqrt(sum / double(w.size()) + eps_);
      for (size_t i = 0; i < w.size(); ++i)
        x[at + i] *= r * w[i];
    }
    return x;
  }
  void rotate(std::vector<double>& x, int heads, size_t n) const {
    const int half = dim_ / 2;
    for (size_t t = 0; t < n; ++t) {
      for (int i = 0; i < half; ++i) {
        const double angle = double(t) * std::pow(base_, -2.0 * i / dim_);
        const double c = std::cos(angle), s = std::sin(angle);
        for (int h = 0; h < heads; ++h) {
          double &a = x[(t * heads + h) * dim_ + i], &b = x[(t * heads + h) * dim_ + half + i];
          const double a0 = a, b0 = b;
          a = a0 * c - b0 * s;
          b = a0 * s + b0 * c;
        }
      }
    }
  }
  std::vector<double> attention(const std::vector<double>& q, const std::vector<double>& k,
                                const std::vector<double>& v, size_t n) const {
    std::vector<double> out(n * heads_ * dim_);
    for (size_t t = 0; t < n; ++t) {
      for (int h = 0; h < heads_; ++h) {
        const int kv = h / (heads_ / kv_heads_);
        const size_t first = window_ > 0 && t + 1 > size_t(window_) ? t + 1 - size_t(window_) : 0;
        std::vector<double> p(t + 1);
        double top = -INFINITY, sum = 0;
        for (size_t j = first; j <= t; ++j) {
          for (int d = 0; d < dim_; ++d)
            p[j] += q[(t * heads_ + h) * dim_ + d] * k[(j * kv_heads_ + kv) * dim_ + d];
          p[j] /= std::sqrt(double(dim_));
          top = std::max(top, p[j]);
        }
        for (size_t j = first; j <= t; ++j)
          sum += p[j] = std::exp(p[j] - top);
        for (size_t j = first; j <= t; ++j) {
          for (int d = 0; d < dim_; ++d)
            out[(t * heads_ + h) * dim_ + d] += p[j] / sum * v[(j * kv_heads_ + kv) * dim_ + d];
        }
      }
    }
    return out;
  }
  // gelu(x), the tanh form, is x / (1 + exp(-this)).
  static double gelu_argument(double x) {
    return 2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += y[i];
  }

  const ModelSource& source_;
  std::string arch_;
  int hidden_ = 0, layers_ = 0, heads_ = 0, kv_heads_ = 0, dim_ = 0;
  int window_ = 0;
  bool gemma_ = false, interleaved_ = false;
  double eps_ = 0, base_ = 0;
};

}  // namespace invar
