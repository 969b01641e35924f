#pragma once
// For tests: small random graphs in the shapes that families record, with random packed weights, and
// sequences with their own KV pages. The same seed gives the same model.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/check.h"
#include "graph/builder.h"
#include "graph/weight_set.h"
#include "kv/codec.h"
#include "kv/kv_run.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"
#include "tensor/packed.h"

namespace invar::test {

using Rng = std::mt19937;
inline int pick(Rng& rng, int low, int high) {
  return low + int(rng() % unsigned(high - low + 1));
}
inline float uniform(Rng& rng, float low, float high) {
  return low + (high - low) * float(rng() % 65536) / 65536.0f;
}

struct Model {
  Graph graph;
  WeightSet weights;
  std::vector<Buffer> bytes;
  std::deque<std::vector<float>> vectors;
  const KvCodec* codec = nullptr;
  std::vector<KvLayout> layouts;  // [groups]
  std::string text;               // what the seed chose
};

// ---- packed weights

inline void fill_float_tiles(Rng& rng, const PackedMatrix& m, std::byte* data) {
  const float size = 1.5f / std::sqrt(float(m.cols));
  const int64_t padded = int64_t(round_up(size_t(m.cols), 4));
  for (int64_t row = 0; row < m.rows; row++) {
    for (int64_t k = 0; k < m.cols; k++) {
      const int64_t i = (row / kTileRows * padded + k) * kTileRows + row % kTileRows;
      const float w = uniform(rng, -size, size);
      const uint16_t half = m.form->dtype == Dtype::kF16 ? f32_to_f16(w) : f32_to_bf16(w);
      m.form->dtype == Dtype::kF32 ? std::memcpy(data + i * 4, &w, 4) : std::memcpy(data + i * 2, &half, 2);
    }
  }
}

inline void fill_e4m3_tiles(Rng& rng, const PackedMatrix& m, std::byte* data) {
  const float size =
      1.5f / std::sqrt(float(m.cols)) / 448 * 256;  // of the largest code, as scales are stored
  const int64_t group = m.form->group;
  for (int64_t tile = 0; tile < tile_count(m.rows); tile++) {
    const int64_t channels = std::min<int64_t>(kTileRows, m.rows - tile * kTileRows);
    for (int64_t k0 = 0; k0 < m.cols; k0 += group) {
      for (int64_t c = 0; c < channels; c++) {
        const float scale = uniform(rng, 0.2f * size, size);
        std::memcpy(data + c * 4, &scale, 4);
      }
      data += kChannelFloats;
      for (int64_t k = k0; k < std::min(k0 + group, m.cols); k++, data += kTileRows)
        for (int64_t c = 0; c < channels; c++)
          data[c] = std::byte(rng() % 127 + (rng() % 2) * 128);
    }
    data += (round_up(size_t(m.cols), 4) - size_t(m.cols)) * kTileRows;
  }
}

// What a form has after its tiles' records, and after the tiles.
inline void fill_ends(Rng& rng, const PackedMatrix& m, std::byte* data) {
  for (int64_t row = 0; m.form->factors && row < m.rows; row++) {
    const float factor = uniform(rng, 0.5f, 1.5f);
    std::memcpy(data + size_t(row / kTileRows + 1) * m.tile_size() - kChannelFloats + row % kTileRows * 4,
                &factor, 4);
  }
  if (!m.form->gathered) return;
  std::vector<int32_t> columns(size_t(m.cols), 0);
  std::iota(columns.begin(), columns.end(), 0);
  // One of few orders, so that matrices share some; experts' gates and ups must.
  std::shuffle(columns.begin(), columns.end(), Rng(uint32_t(m.cols)));
  std::memcpy(data + m.tile_size() * size_t(tile_count(m.rows)), columns.data(), columns.size() * 4);
}

// Scales of one record: a first scale of every channel from `make`, zero for channels that pad the last tile.
template <class Make>
void fill_halves(std::byte* at, int channels, Make make, bool bf16 = false) {
  for (int c = 0; c < kTileRows; c++) {
    const float value = c < channels ? make() : 0.0f;
    const uint16_t half = bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(at + c * 2, &half, 2);
  }
}

inline void fill_quantized_tiles(Rng& rng, const PackedMatrix& m, std::byte* data) {
  const PackedForm& f = *m.form;
  const int highest = f.table ? *std::max_element(f.table->code, f.table->code + 16) : (1 << f.bits) - 1;
  const float top = float(std::max<int>(f.zero_point, highest - f.zero_point));
  const float steps = f.scale == ScaleKind::kF16xU8 ? 160 : f.scale == ScaleKind::kF32xS8 ? 80 : 1;
  const float size = 1.5f / std::sqrt(float(m.cols)) / top / steps;
  const auto scale = [&] { return uniform(rng, 0.2f * size, size) * (rng() % 4 == 0 ? -1.0f : 1.0f); };
  const auto bias = [&] { return uniform(rng, -size * top, size * top); };
  for (int64_t tile = 0; tile < tile_count(m.rows); tile++) {
    const int channels = int(std::min<int64_t>(kTileRows, m.rows - tile * kTileRows));
    std::byte* record = data + size_t(tile) * m.tile_size();
    for (int64_t k = 0; k < m.cols; k += kRecordCols) {
      const int64_t cols = std::min<int64_t>(kRecordCols, m.cols - k);
      const size_t area = scale_area_bytes(f, cols);
      for (size_t i = area; i < record_bytes(f, cols); i++)
        record[i] = std::byte(rng());
      if (has_half_scales(f)) {
        const bool bf16 = f.scale == ScaleKind::kBF16, has_bias = f.bias != BiasKind::kNone;
        const int64_t step = has_bias ? 64 : 32;
        for (int64_t g = 0; g < cols / f.group; g++) {
          fill_halves(record + g * step, channels, scale, bf16);
          if (has_bias) fill_halves(record + g * step + 32, channels, bias, bf16);
        }
      } else {
        if (f.scale == ScaleKind::kF32xS8) {
          for (int c = 0; c < kTileRows; c++) {
            // Eleven bits, as in files: the product with a sub-scale must be exact.
            const float head = c < channels ? f16_to_f32(f32_to_f16(scale())) : 0.0f;
            std::memcpy(record + 4 * c, &head, 4);
          }
        } else {
          fill_halves(record, channels, scale);
          fill_halves(record + 32, channels, bias);
        }
        for (size_t i = 64; i < area; i++)
          record[i] = std::byte(rng());
      }
      record += record_bytes(f, cols);
    }
  }
}

inline const PackedForm* random_form(Rng& rng, int64_t cols, int preferred) {
  constexpr int kForms = int(std::size(kPackedForms)), kFloatForms = 5;
  const int form = rng() % 3 == 0 ? pick(rng, 0, kForms - 1) : preferred;
  return &kPackedForms[cols % 32 == 0 ? form : form % kFloatForms];
}

inline void make_weights(Rng& rng, Model& model) {
  const size_t count = model.graph.weights.size();
  model.weights.matrices.resize(count);
  model.weights.vectors.resize(count);
  const int preferred = pick(rng, 0, int(std::size(kPackedForms)) - 1);  // most matrices share a form
  for (size_t i = 0; i < count; i++) {
    const Weight& w = model.graph.weights[i];
    if (w.kind == Weight::Kind::kVector) {
      std::vector<float>& v = model.vectors.emplace_back(w.rows);
      const bool norm = w.name.find("norm") != std::string::npos;
      for (float& x : v)
        x = norm ? uniform(rng, 0.5f, 1.5f) : uniform(rng, -0.1f, 0.1f);
      model.weights.vectors[i] = v;
      continue;
    }
    PackedMatrix m{random_form(rng, w.cols, preferred), w.rows, w.cols, nullptr};
    // Halves of an expert read one quantized row: in one order.
    if (w.name.find("expert") != std::string::npos && w.name.ends_with(".up"))
      m.form = model.weights.matrices[i - 1].form;
    model.text += std::string(" ") + m.form->name;
    Buffer& bytes = model.bytes.emplace_back(m.bytes());
    m.data = bytes.data();
    const auto fill = !is_float(*m.form)              ? fill_quantized_tiles
                      : m.form->dtype == Dtype::kE4M3 ? fill_e4m3_tiles
                                                      : fill_float_tiles;
    fill(rng, m, bytes.data());
    fill_ends(rng, m, bytes.data());
    model.weights.matrices[i] = m;
  }
}

// ---- graphs

struct Shape {
  int layers, hidden, heads, kv_heads, head_dim, rope_dim, ffn, vocab;
  bool tied, biases, qk_norm, skip_some_ropes, post_norm, parallel, late_residual, odd_logits;
  bool gelu, plain_mlp, layer_norm, softcap, multipliers, adjacent, long_rope, sinks;
  bool per_layer, streams, borrow, two_groups;
  int experts, chosen;  // 0: one dense network
  ExpertsAttr routing;
  bool shared, shared_gate, corrected, expert_scale;
};

inline void add_random_experts(Rng& rng, Shape& s) {
  const auto sometimes = [&](int one_in) { return rng() % unsigned(one_in) == 0; };
  s.experts = pick(rng, 2, 9);
  s.chosen = pick(rng, 1, std::min(s.experts, 4));
  s.routing.routing = Routing(rng() % 3);
  s.routing.unit = GatedUnit(rng() % 3);
  s.routing.alpha = 1.702f, s.routing.limit = 0.7f;
  s.routing.renormalize = sometimes(2);
  s.routing.sum_floor = sometimes(2) ? 1e-20f : 0;
  s.routing.scale = sometimes(2) ? 1.5f : 1;
  s.shared = sometimes(2), s.shared_gate = s.shared && sometimes(2);
  s.corrected = s.routing.routing != Routing::kSoftmaxOfChosen && sometimes(2);
  s.expert_scale = sometimes(3);
}

inline Shape random_shape(Rng& rng) {
  Shape s{};
  constexpr int kHeads[][2] = {{4, 2}, {2, 2}, {6, 2}, {4, 1}, {3, 3}};
  const auto& heads = kHeads[rng() % std::size(kHeads)];
  s.layers = pick(rng, 1, 3);
  s.hidden = 32 * pick(rng, 1, 3) + (rng() % 6 == 0 ? 8 : 0);
  s.heads = heads[0];
  s.kv_heads = heads[1];
  s.head_dim = rng() % 2 ? 32 : 16;
  s.rope_dim = rng() % 4 ? s.head_dim : s.head_dim / 2;
  s.ffn = 32 * pick(rng, 1, 4) + (rng() % 6 == 0 ? 5 : 0);
  s.vocab = pick(rng, 30, 150);
  const auto sometimes = [&](int one_in) { return rng() % unsigned(one_in) == 0; };
  s.tied = sometimes(2), s.biases = sometimes(3), s.qk_norm = sometimes(3), s.skip_some_ropes = sometimes(3);
  s.post_norm = sometimes(6), s.parallel = sometimes(6), s.late_residual = sometimes(6),
  s.odd_logits = sometimes(6);
  s.gelu = sometimes(3), s.plain_mlp = sometimes(6), s.layer_norm = sometimes(5), s.softcap = sometimes(4);
  s.multipliers = sometimes(4), s.adjacent = sometimes(4), s.long_rope = sometimes(3);
  s.per_layer = sometimes(4), s.streams = sometimes(4), s.borrow = sometimes(3), s.two_groups = sometimes(3);
  s.sinks = sometimes(4);
  if (sometimes(2)) add_random_experts(rng, s);
  return s;
}

// attended: of the last node that wrote to the group, or kNone.
inline ValueId record_attention(GraphBuilder& b, const Shape& s, const std::string& p, ValueId n, int group,
                                int rope, ValueId& attended) {
  const int q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const auto bias = [&](const std::string& name, int size) {
    return s.biases ? b.vector(p + name, size) : kNone;
  };
  ValueId q = b.linear(p + "q", n, b.matrix(p + "q", q_width, s.hidden), bias("q_bias", q_width));
  if (s.qk_norm) q = b.rms_norm(p + "q_norm", q, b.vector(p + "q_norm", s.head_dim), 1e-6f, s.head_dim);
  if (rope != kNone) q = b.rotate(p + "q_rope", q, rope, s.heads, s.head_dim);
  if (s.borrow && attended != kNone) {
    const ValueId a = b.borrow(p + "attend", q, attended);
    return b.linear(p + "o", a, b.matrix(p + "o", s.hidden, q_width), bias("o_bias", s.hidden));
  }
  ValueId k = b.linear(p + "k", n, b.matrix(p + "k", kv_width, s.hidden), bias("k_bias", kv_width));
  if (s.qk_norm) k = b.rms_norm(p + "k_norm", k, b.vector(p + "k_norm", s.head_dim), 1e-6f, s.head_dim);
  if (rope != kNone) k = b.rotate(p + "k_rope", k, rope, s.kv_heads, s.head_dim);
  ValueId v = b.linear(p + "v", n, b.matrix(p + "v", kv_width, s.hidden), bias("v_bias", kv_width));
  if (s.qk_norm) v = b.rms_norm(p + "v_norm", v, kNone, 1e-6f, s.head_dim);
  const float scale = 1.0f / std::sqrt(float(s.head_dim));
  const ValueId a = b.attend(p + "attend", q, k, v,
                             {group, 0, s.heads, s.kv_heads, s.head_dim, scale, s.softcap ? 1.5f : 0},
                             s.sinks ? b.vector(p + "sinks", s.heads) : kNone);
  attended = a;
  return b.linear(p + "o", a, b.matrix(p + "o", s.hidden, q_width), bias("o_bias", s.hidden));
}

inline ValueId record_experts(GraphBuilder& b, const Shape& s, const std::string& p, ValueId n) {
  const auto network = [&](const std::string& at) {
    ExpertWeights e;
    e.gate = b.matrix(at + "gate", s.ffn, s.hidden);
    e.up = b.matrix(at + "up", s.ffn, s.hidden);
    e.down = b.matrix(at + "down", s.hidden, s.ffn);
    if (s.biases) {
      e.gate_bias = b.vector(at + "gate_b", s.ffn);
      e.down_bias = b.vector(at + "down_b", s.hidden);
    }
    return e;
  };
  std::vector<ExpertWeights> set;
  for (int e = 0; e < s.experts; e++)
    set.push_back(network(p + "expert" + std::to_string(e) + "."));
  std::vector<ValueId> in = {n, b.linear(p + "gating", n, b.matrix(p + "gating", s.experts, s.hidden))};
  if (s.shared) {
    const ExpertWeights e = network(p + "shared.");
    const ValueId gate = b.linear(p + "shared_gate", n, e.gate), up = b.linear(p + "shared_up", n, e.up);
    in.push_back(b.linear(p + "shared_down", b.gated_silu(p + "shared_act", gate, up), e.down));
    if (s.shared_gate) in.push_back(b.linear(p + "gate_of_shared", n, b.matrix(p + "sg", 1, s.hidden)));
  }
  ExpertsAttr attr = s.routing;
  attr.chosen = s.chosen;
  return b.experts(p + "experts", in, set, attr,
                   s.expert_scale ? b.vector(p + "expert_scale", s.experts) : kNone,
                   s.corrected ? b.vector(p + "correction", s.experts) : kNone);
}

inline ValueId record_ffn(GraphBuilder& b, const Shape& s, const std::string& p, ValueId n) {
  if (s.experts > 0) return record_experts(b, s, p, n);
  if (s.plain_mlp) {
    ValueId h = b.linear(p + "fc", n, b.matrix(p + "fc", s.ffn, s.hidden));
    h = b.gelu(p + "gelu", h);
    return b.linear(p + "down", h, b.matrix(p + "down", s.hidden, s.ffn));
  }
  ValueId gate = b.linear(p + "gate", n, b.matrix(p + "gate", s.ffn, s.hidden));
  if (s.streams) gate = b.sparsify(p + "sparse", gate, 0.4f);
  const ValueId up = b.linear(p + "up", n, b.matrix(p + "up", s.ffn, s.hidden),
                              s.biases ? b.vector(p + "up_bias", s.ffn) : kNone);
  const ValueId y = s.gelu ? b.gated_gelu(p + "act", gate, up) : b.gated_silu(p + "act", gate, up);
  return b.linear(p + "down", y, b.matrix(p + "down", s.hidden, s.ffn));
}

// What follows a layer: an input of its own from a second table, and streams that are mixed by factors.
inline ValueId record_extras(GraphBuilder& b, const Shape& s, const std::string& p, ValueId x, ValueId inputs,
                             int layer) {
  if (s.per_layer) {
    const ValueId own = b.columns(p + "columns", inputs, layer * 24, 24);
    const ValueId gate = b.linear(p + "own_gate", x, b.matrix(p + "own_gate", 24, s.hidden));
    const ValueId y = b.gated_gelu(p + "own_act", gate, own);
    x = b.add(p + "own_add", x, b.linear(p + "own_out", y, b.matrix(p + "own_out", s.hidden, 24)));
    x = b.multiply(p + "one", x, b.vector(p + "norm_one", 1));
  }
  if (s.streams) {
    const ValueId c = b.tanh(p + "factors", b.linear(p + "router", x, b.matrix(p + "router", 5, s.hidden)));
    ValueId y = b.linear(p + "stream", x, b.matrix(p + "stream", s.hidden, s.hidden));
    y = b.match_rms(p + "match", y, x, 1e-5f);
    y = b.add_scaled(p + "mix0", y, x, c, 4);
    y = b.add_scaled(p + "mix1", y, x, c, 1);
    x = b.multiply(p + "many", y, b.vector(p + "norm_many", s.hidden));
  }
  return x;
}

inline ValueId record(GraphBuilder& b, const Shape& s) {
  std::vector<float> freq(s.rope_dim / 2);
  for (size_t i = 0; i < freq.size(); i++)
    freq[i] = std::pow(0.05f, float(i) / float(freq.size()));
  Rope table{.dim = s.rope_dim, .inv_freq = freq, .attention_factor = 1.1f, .scaled = s.biases};
  table.adjacent = s.adjacent;
  if (s.long_rope) {
    for (const float f : freq)
      table.long_inv_freq.push_back(f * 0.7f);
    table.short_context = 8;
  }
  const int rope = b.rope(table);
  const int group = b.kv_group({.layers = 0, .kv_heads = s.kv_heads, .head_dim = s.head_dim});
  Shape other = s;  // of odd layers
  int other_group = group;
  if (s.two_groups && s.layers > 1) {
    other.kv_heads = 1, other.head_dim = 2 * s.head_dim;
    other_group = b.kv_group({.layers = 0, .kv_heads = other.kv_heads, .head_dim = other.head_dim});
  }
  ValueId attended[2] = {kNone, kNone};
  const WeightId embedding = b.matrix("embed", s.vocab, s.hidden);
  ValueId first = b.embed("embed", embedding);
  if (s.multipliers) first = b.scale("embed_scale", first, 3.0f);
  ValueId inputs = kNone;
  if (s.per_layer)
    inputs = b.embed("inputs", b.matrix("inputs", std::max(1, s.vocab - 9), int64_t{24} * s.layers));
  ValueId x = first;
  for (int layer = 0; layer < s.layers; layer++) {
    const std::string p = "layers." + std::to_string(layer) + ".";
    const auto norm = [&](const std::string& name, ValueId v) {
      if (s.layer_norm)
        return b.layer_norm(p + name, v, b.vector(p + name, s.hidden), b.vector(p + name + "b", s.hidden),
                            1e-5f);
      return b.rms_norm(p + name, v, b.vector(p + name, s.hidden), 1e-5f);
    };
    const ValueId before = x;
    const ValueId n = norm("norm1", x);
    const bool odd = layer % 2 == 1;
    ValueId y = record_attention(b, odd ? other : s, p, n, odd ? other_group : group,
                                 s.skip_some_ropes && odd ? kNone : rope, attended[odd && s.two_groups]);
    if (s.post_norm) y = norm("post_norm1", y);
    if (s.multipliers) y = b.scale(p + "scale1", y, 0.3f);
    x = b.add(p + "add1", x, y);
    y = record_ffn(b, s, p, s.parallel ? n : norm("norm2", x));
    if (s.post_norm) y = norm("post_norm2", y);
    if (s.multipliers) y = b.scale(p + "scale2", y, 0.3f);
    x = layer % 2 == 0 ? b.add(p + "add2", x, y) : b.add(p + "add2", y, x);
    if (s.late_residual) x = b.add(p + "add3", x, before);
    x = record_extras(b, s, p, x, inputs, layer);
  }
  if (s.late_residual) x = b.add("add", first, x);
  x = b.rms_norm("norm", x, b.vector("norm", s.hidden), 1e-5f);
  x = b.select_logit_rows("select", x);
  ValueId logits = b.linear("head", x, s.tied ? embedding : b.matrix("head", s.vocab, s.hidden));
  if (s.multipliers) logits = b.scale("logit_scale", logits, 0.4f);
  if (s.softcap) logits = b.softcap("logit_cap", logits, 2.0f);
  return s.odd_logits ? b.add("odd", logits, logits) : logits;
}

inline Model make_model(const Shape& shape, Rng& rng, const KvCodec* codec) {
  GraphBuilder builder;
  const ValueId logits = record(builder, shape);
  Model model;
  model.graph = std::move(builder).finish(logits, shape.vocab).value();
  model.codec = codec;
  for (const KvGroup& g : model.graph.kv_groups)
    model.layouts.push_back({codec, g.layers, g.kv_heads, g.head_dim});
  make_weights(rng, model);
  return model;
}

inline Model random_model(uint32_t seed) {
  Rng rng(seed);
  const Shape shape = random_shape(rng);
  const auto codecs = kv_codecs();
  return make_model(shape, rng, &codecs[rng() % codecs.size()]);
}

// ---- sequences

// One sequence's pages in every KV group, made as positions are reserved.
class Pages {
 public:
  explicit Pages(const Model& model) : model_(&model), pages_(model.layouts.size()) {}

  std::span<const KvView> reserve(int32_t positions) {
    views_.clear();
    runs_.assign(pages_.size(), {});
    for (size_t g = 0; g < pages_.size(); g++) {
      while (int32_t(pages_[g].size()) * kPageTokens < positions) {
        pages_[g].emplace_back(model_->layouts[g].page_bytes());
      }
      for (int32_t p = 0; p < positions; p += kPageTokens) {
        runs_[g].push_back(
            {pages_[g][size_t(p / kPageTokens)].data(), p, std::min(kPageTokens, positions - p)});
      }
      views_.push_back({&model_->layouts[g], runs_[g], 0});
    }
    return views_;
  }

  bool same_bytes(const Pages& other) const {
    for (size_t g = 0; g < pages_.size(); g++) {
      if (pages_[g].size() != other.pages_[g].size()) return false;
      for (size_t p = 0; p < pages_[g].size(); p++) {
        if (std::memcmp(pages_[g][p].data(), other.pages_[g][p].data(), pages_[g][p].size()) != 0)
          return false;
      }
    }
    return true;
  }

 private:
  const Model* model_;
  std::vector<std::vector<Buffer>> pages_;
  std::vector<std::vector<KvRun>> runs_;
  std::vector<KvView> views_;
};

}  // namespace invar::test
