#pragma once
// For attention tests: a sequence with KV pages and queries, and a literal reading of docs/numerics.md,
// section 5.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "kernels/test_sets.h"
#include "tensor/exact_math.h"
#include "tensor/float16.h"

namespace invar {

struct Shape {
  int context, rows, heads, kv_heads, head_dim, window;
  float softcap = 0;
  bool sinks = false;
};

inline std::string name_of(const Shape& s, const KvCodec& codec) {
  return std::string(codec.name) + " context " + std::to_string(s.context) + " rows " +
         std::to_string(s.rows) + " heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
         " d " + std::to_string(s.head_dim) + " window " + std::to_string(s.window) +
         (s.softcap > 0 ? " capped" : "") + (s.sinks ? " with sinks" : "");
}

// One sequence in one layer (of two) with its pages in shuffled order, q of its last `rows` positions.
class Sequence {
 public:
  Sequence(const Shape& shape, const KvCodec& codec, const KernelTable& writer, uint64_t seed)
      : shape_(shape) {
    layout_ = {&codec, 2, shape.kv_heads, shape.head_dim};
    const int pages = (shape.context + kPageTokens - 1) / kPageTokens;
    const size_t floats = layout_.page_bytes() / 4;
    memory_.assign(floats * pages + 16, 0.0f);
    std::byte* base =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64);
    for (int p = 0; p < pages; p++) {
      const int length = std::min(kPageTokens, shape.context - p * kPageTokens);
      runs_.push_back({base + layout_.page_bytes() * ((p * 7 + 3) % pages == p ? p : pages - 1 - p),
                       p * kPageTokens, length});
    }
    view_ = {&layout_, runs_, shape.window};
    TestRandom random(seed);
    const int width = shape.kv_heads * shape.head_dim;
    keys.resize(size_t(shape.context) * width);
    values.resize(keys.size());
    for (float& k : keys)
      k = random.normal() * 2;
    for (float& v : values)
      v = random.normal();
    q.resize(size_t(shape.rows) * stride());
    for (float& x : q)
      x = random.normal() * 2;
    for (int h = 0; shape.sinks && h < shape.heads; h++)
      sinks.push_back(random.normal() * 3);
    for (int p = 0; p < shape.context; p++)
      write(writer, p);
    EXPECT_EQ(write_fault, 0);
  }
  Sequence(const Sequence&) = delete;

  void write(const KernelTable& t, int position) {
    const size_t at = size_t(position) * shape_.kv_heads * shape_.head_dim;
    t.kv_write[layout_.codec->index](view_, 1, position, &keys[at], &values[at], &write_fault);
  }

  int stride() const { return shape_.heads * shape_.head_dim + 5; }
  int first_position() const { return shape_.context - shape_.rows; }
  AttendArgs args(std::vector<float>& out, std::vector<uint8_t>& faults) const {
    out.assign(size_t(shape_.rows) * stride(), 77.0f);
    faults.assign(shape_.rows, 0);
    return {q.data(),
            stride(),
            out.data(),
            stride(),
            shape_.rows,
            first_position(),
            shape_.heads,
            scale(),
            &view_,
            1,
            faults.data(),
            shape_.softcap,
            sinks.empty() ? nullptr : sinks.data()};
  }
  float scale() const { return 1.0f / std::sqrt(float(shape_.head_dim)); }
  const Shape& shape() const { return shape_; }
  const KvLayout& layout() const { return layout_; }
  KvView& view() { return view_; }

  // The stored value of element i of a head, widened.
  float stored(int kv_head, int position, int plane, int d) const {
    const KvRun& run = runs_[size_t(position / kPageTokens)];
    const int slot = position % kPageTokens;
    const int64_t i = plane == 0 ? int64_t(d) * kPageTokens + slot : int64_t(slot) * shape_.head_dim + d;
    const std::byte* p = run.page + layout_.plane_offset(1, kv_head, plane);
    switch (layout_.codec->dtype) {
      case Dtype::kF32:
        return reinterpret_cast<const float*>(p)[i];
      case Dtype::kF16:
        return f16_to_f32(reinterpret_cast<const uint16_t*>(p)[i]);
      case Dtype::kBF16:
        return bf16_to_f32(reinterpret_cast<const uint16_t*>(p)[i]);
      case Dtype::kE4M3:
        break;  // no codec has it
    }
    return 0;
  }
  // Fills the slots behind the context in the last page with finite rubbish.
  void spoil_unwritten_slots() {
    const KvRun& run = runs_.back();
    TestRandom random(9);
    for (int h = 0; h < shape_.kv_heads; h++) {
      for (int plane = 0; plane < 2; plane++) {
        std::byte* p = run.page + layout_.plane_offset(1, h, plane);
        for (int slot = run.length; slot < kPageTokens; slot++) {
          for (int d = 0; d < shape_.head_dim; d++) {
            const int64_t i =
                plane == 0 ? int64_t(d) * kPageTokens + slot : int64_t(slot) * shape_.head_dim + d;
            const float x = random.normal() * 1e4f;
            switch (layout_.codec->dtype) {
              case Dtype::kF32:
                reinterpret_cast<float*>(p)[i] = x;
                break;
              case Dtype::kF16:
                reinterpret_cast<uint16_t*>(p)[i] = f32_to_f16(x);
                break;
              case Dtype::kBF16:
                reinterpret_cast<uint16_t*>(p)[i] = f32_to_bf16(x);
                break;
              case Dtype::kE4M3:
                break;
            }
          }
        }
      }
    }
  }

  std::vector<float> keys, values;  // [context, kv_heads, head_dim] before rounding
  std::vector<float> q;             // [rows, stride]
  std::vector<float> sinks;         // [heads], or empty
  uint8_t write_fault = 0;

 private:
  Shape shape_;
  KvLayout layout_;
  std::vector<float> memory_;
  std::vector<KvRun> runs_;
  KvView view_;
};

// Scratch of exactly the promised size, 64-byte aligned.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : p_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {}
  ~Scratch() { std::free(p_); }
  Scratch(const Scratch&) = delete;
  std::byte* get() const { return p_; }

 private:
  std::byte* p_;
};

inline std::vector<float> attend(const KernelTable& t, const Sequence& s,
                                 std::vector<uint8_t>* faults_out = nullptr) {
  std::vector<float> out;
  std::vector<uint8_t> faults;
  const AttendArgs args = s.args(out, faults);
  const int group = s.shape().heads / s.shape().kv_heads;
  const Scratch scratch(t.attend_scratch(args.rows, group, s.shape().head_dim));
  for (int h = 0; h < s.shape().kv_heads; h++) {
    t.attend[s.layout().codec->index](args, h, 0, args.rows, scratch.get());
  }
  if (faults_out) *faults_out = faults;
  return out;
}

// Section 5, one query at a time, position by position.
inline void literal_query(const Sequence& s, int row, int head, float* out) {
  const int d_count = s.shape().head_dim, kv_head = head / (s.shape().heads / s.shape().kv_heads);
  const int pos = s.first_position() + row, window = s.shape().window;
  const float* q = &s.q[size_t(row) * s.stride() + size_t(head) * d_count];
  float m = -0x1p100f, l = 0;
  std::vector<float> o(d_count, 0.0f);
  for (int split = 0; split * 256 <= pos; split++) {
    float mi = -0x1p100f, li = 0;
    std::vector<float> oi(d_count, 0.0f);
    for (int page = split * 4; page < split * 4 + 4; page++) {
      float p[64], highest = -std::numeric_limits<float>::infinity();
      for (int j = 0; j < 64; j++) {
        const int t = page * 64 + j;
        p[j] = -std::numeric_limits<float>::infinity();
        if (t > pos || (window > 0 && t <= pos - window)) continue;
        float even = 0, odd = 0;
        for (int d = 0; d < d_count; d += 2)
          even = fma_f32(q[d], s.stored(kv_head, t, 0, d), even);
        for (int d = 1; d < d_count; d += 2)
          odd = fma_f32(q[d], s.stored(kv_head, t, 0, d), odd);
        p[j] = (even + odd) * s.scale();
        if (const float cap = s.shape().softcap; cap > 0) p[j] = cap * tanh_f32(p[j] / cap);
        highest = p[j] > highest ? p[j] : highest;
      }
      const float next = highest > mi ? highest : mi, c = exp_or_zero_f32(mi - next);
      float lanes[16] = {};
      for (int j = 0; j < 64; j++) {
        p[j] = exp_or_zero_f32(p[j] - next);
        lanes[j % 16] += p[j];
      }
      for (int w = 8; w >= 1; w /= 2) {
        for (int k = 0; k < w; k++)
          lanes[k] += lanes[k + w];
      }
      li = fma_f32(li, c, lanes[0]);
      mi = next;
      for (int d = 0; d < d_count; d++) {
        float x = oi[d] * c;
        for (int j = 0; j < 64; j++) {
          const int t = page * 64 + j;
          x = fma_f32(p[j], t < s.shape().context ? s.stored(kv_head, t, 1, d) : 0.0f, x);
        }
        oi[d] = x;
      }
    }
    const float next = mi > m ? mi : m, c = exp_or_zero_f32(m - next), ci = exp_or_zero_f32(mi - next);
    l = fma_f32(l, c, li * ci);
    for (int d = 0; d < d_count; d++)
      o[d] = fma_f32(o[d], c, oi[d] * ci);
    m = next;
  }
  if (s.shape().sinks) {
    const float z = s.sinks[size_t(head)], top = z > m ? z : m, c = exp_or_zero_f32(m - top);
    l = fma_f32(l, c, exp_or_zero_f32(z - top));
    for (float& x : o)
      x *= c;
  }
  for (int d = 0; d < d_count; d++)
    out[d] = o[d] / l + 0.0f;
}

inline std::vector<float> literal(const Sequence& s) {
  std::vector<float> out(size_t(s.shape().rows) * s.stride(), 77.0f);
  for (int r = 0; r < s.shape().rows; r++) {
    for (int h = 0; h < s.shape().heads; h++) {
      literal_query(s, r, h, &out[size_t(r) * s.stride() + size_t(h) * s.shape().head_dim]);
    }
  }
  return out;
}

}  // namespace invar
