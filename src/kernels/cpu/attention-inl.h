#pragma once
// Attention over KV pages (docs/numerics.md, section 5), written once over the 16-lane vectors of the set
// being compiled: rows of one KV head, splits, their combination, and KV writes. Blocking, skipped slots and
// the order of blocks never change a bit: within a query, positions of a page, pages of a split and splits go
// in ascending order, and each position is a lane of its own.
//
// Scratch (attend_scratch bytes, 64-byte aligned), f32, n queries, D = head_dim rounded up to 16:
//   queries [blocks][head_dim][block size]; part O [n][D], m [n], l [n]; total O [n][D], m [n], l [n];
//   widened page: keys [head_dim][64], values [64][D].

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/cpu/attention_block-inl.h"
#include "kernels/kernel_table.h"
#include "kv/codecs/raw-inl.h"  // after the vectors it uses
#include "tensor/exact_math.h"

namespace invar::INVAR_ISA {

static constexpr float kNoScore = -0x1p100f;  // m of a query that has seen nothing

// ---- rows of one KV head

// The work of one call: rows [row_begin, row_end) of one KV head, and where its scratch lies.
struct Rows {
  const AttendArgs& args;
  int kv_head, row_begin, row_end;
  int group;  // query heads of the KV head
  int head_dim, padded;
  int queries;  // n
  int block;    // queries of a block (the last one may be smaller)
  float* q;
  State part, total;
  float* keys;
  float* values;

  Rows(const AttendArgs& a, int head, int begin, int end, std::byte* scratch)
      : args(a), kv_head(head), row_begin(begin), row_end(end) {
    const KvLayout& layout = *a.kv->layout;
    head_dim = layout.head_dim;
    padded = (head_dim + 15) / 16 * 16;
    group = a.heads / layout.kv_heads;
    queries = (end - begin) * group;
    CHECK(head_dim % 2 == 0 && a.heads % layout.kv_heads == 0);
    const int blocks = (queries + kBlock - 1) / kBlock;
    block = blocks ? (queries + blocks - 1) / blocks : 1;
    float* p = (float*)scratch;
    const auto take = [&](int64_t floats) {
      float* r = p;
      p += (floats + 15) / 16 * 16;
      return r;
    };
    q = take(int64_t(queries) * head_dim);
    for (State* s : {&part, &total}) {
      s->o = take(int64_t(queries) * padded);
      s->m = take(queries);
      s->l = take(queries);
      s->stride = padded;
    }
    keys = take(int64_t(head_dim) * kPageTokens);
    values = take(int64_t(padded) * kPageTokens);
  }

  int position(int row) const { return args.first_position + row; }
  // Positions [low, high) that a row sees.
  int low(int row) const {
    const int window = args.kv->window;
    return window > 0 && position(row) - window + 1 > 0 ? position(row) - window + 1 : 0;
  }
  int high(int row) const { return position(row) + 1; }
  const float* query(int i) const {
    return args.q + int64_t(row_begin + i / group) * args.q_stride +
           int64_t(kv_head * group + i % group) * head_dim;
  }

  void pack_queries() {
    for (int first = 0; first < queries; first += block) {
      const int count = queries - first < block ? queries - first : block;
      float* out = q + int64_t(first) * head_dim;
      for (int i = 0; i < count; i++) {
        const float* in = query(first + i);
        for (int d = 0; d < head_dim; d++)
          out[d * count + i] = in[d];
      }
    }
  }
};

static size_t attend_scratch(int rows, int heads_per_kv_head, int head_dim) {
  const size_t n = size_t(rows) * size_t(heads_per_kv_head), padded = (size_t(head_dim) + 15) / 16 * 16;
  const auto take = [](size_t floats) { return (floats + 15) / 16 * 64; };
  return take(n * size_t(head_dim)) + 2 * (take(n * padded) + 2 * take(n)) +
         take(size_t(head_dim) * kPageTokens) + take(padded * kPageTokens);
}

static void reset(const State& s, int queries) {
  memset(s.o, 0, size_t(queries) * size_t(s.stride) * 4);
  memset(s.l, 0, size_t(queries) * 4);
  for (int i = 0; i < queries; i++)
    s.m[i] = kNoScore;
}

// The part of one split into rows.part.
template <class Codec>
static void attend_part(const Rows& rows, int split) {
  reset(rows.part, rows.queries);
  const KvView& kv = *rows.args.kv;
  const KvLayout& layout = *kv.layout;
  const size_t k_offset = layout.plane_offset(rows.args.layer, rows.kv_head, 0);
  const size_t v_offset = layout.plane_offset(rows.args.layer, rows.kv_head, 1);
  const KvRun* runs = kv.runs.data();
  const int run_count = int(kv.runs.size());
  const int low = rows.low(rows.row_begin), high = rows.high(rows.row_end - 1);
  const int begin = low > split * kSplitTokens ? low : split * kSplitTokens;
  const int end = high < (split + 1) * kSplitTokens ? high : (split + 1) * kSplitTokens;
  if (begin >= end) return;
  CHECK(run_count > 0 && runs[0].first_position <= low);
  const int base = runs[0].first_position / kPageTokens;
  CHECK((end - 1) / kPageTokens - base < run_count);

  // One block reads each element once: straight from the page. Several share a widened copy.
  const bool straight = rows.queries <= kBlock && rows.head_dim % 16 == 0;
  for (int page = begin / kPageTokens; page * kPageTokens < end; page++) {
    const std::byte* bytes = runs[page - base].page;
    if (!straight) {
      Codec::widen_keys(bytes + k_offset, rows.head_dim, rows.keys);
      Codec::widen_values(bytes + v_offset, rows.head_dim, rows.padded, rows.values);
    }
    const int start = page * kPageTokens;
    for (int first = 0; first < rows.queries; first += rows.block) {
      const int count = rows.queries - first < rows.block ? rows.queries - first : rows.block;
      bool bad[kLargestBlock] = {};
      BlockTask t;
      t.q = rows.q + int64_t(first) * rows.head_dim;
      t.head_dim = rows.head_dim;
      t.scale = rows.args.scale;
      t.softcap = rows.args.softcap;
      t.state = {rows.part.o + int64_t(first) * rows.padded, rows.part.m + first, rows.part.l + first,
                 rows.padded};
      t.bad = bad;
      t.first = kPageTokens;
      t.last = 0;
      for (int i = 0; i < count; i++) {
        const int row = rows.row_begin + (first + i) / rows.group;
        const int lo = rows.low(row) - start, hi = rows.high(row) - start;
        t.begin[i] = lo < 0 ? 0 : lo > kPageTokens ? kPageTokens : lo;
        t.end[i] = hi < 0 ? 0 : hi > kPageTokens ? kPageTokens : hi;
        if (t.begin[i] >= t.end[i]) continue;
        if (t.begin[i] < t.first) t.first = t.begin[i];
        if (t.end[i] > t.last) t.last = t.end[i];
      }
      if (t.first >= t.last) continue;
      if (straight) {
        t.value_stride = rows.head_dim;
        const std::byte* next = (page + 1) * kPageTokens < end ? runs[page + 1 - base].page : bytes;
        attend_block_of(count, t, Codec::source(bytes + k_offset, next + k_offset),
                        Codec::source(bytes + v_offset, next + v_offset));
      } else {
        t.value_stride = rows.padded;
        attend_block_of(count, t, FloatSource{rows.keys}, FloatSource{rows.values});
      }
      for (int i = 0; i < count; i++) {
        if (bad[i]) mark_fault(&rows.args.faults[rows.row_begin + (first + i) / rows.group]);
      }
    }
  }
}

// total = total + one split's part, for one query. part_o may have any alignment; head_dim floats.
INVAR_INLINE void combine(float* o, float* m, float* l, const float* part_o, float part_m, float part_l,
                          int head_dim) {
  const float next = part_m > *m ? part_m : *m;
  const float c = exp_or_zero_f32(*m - next), part_c = exp_or_zero_f32(part_m - next);
  *l = fma_f32(*l, c, part_l * part_c);
  *m = next;
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    const Vf x = n == 16 ? load(part_o + d) : load_n(part_o + d, n);
    store(o + d, fma(load(o + d), set1(c), mul(x, set1(part_c))));
  }
}

// total = total + a score without a value, for one query.
INVAR_INLINE void add_sink(float* o, float m, float* l, float sink, int head_dim) {
  const float top = sink > m ? sink : m, c = exp_or_zero_f32(m - top);
  *l = fma_f32(*l, c, exp_or_zero_f32(sink - top));
  for (int d = 0; d < head_dim; d += 16)
    store(o + d, mul(load(o + d), set1(c)));
}

// out = O / l + 0: the added +0 makes the sign of zero canonical.
INVAR_INLINE void finish(const float* o, float l, int head_dim, float* out, uint8_t* fault) {
  Mask bad = first_n(0);
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    const Vf y = add(div(load(o + d), set1(l)), zero());
    if (n == 16) {
      bad = either(bad, not_finite(y));
      store(out + d, y);
    } else {
      bad = either(bad, both(not_finite(y), first_n(n)));
      store_n(out + d, y, n);
    }
  }
  if (any(bad)) mark_fault(fault);
}

template <class Codec>
static void attend(const AttendArgs& args, int kv_head, int row_begin, int row_end, std::byte* scratch) {
  if (row_begin >= row_end) return;
  Rows rows(args, kv_head, row_begin, row_end, scratch);
  rows.pack_queries();
  reset(rows.total, rows.queries);
  const int first = rows.low(row_begin) / kSplitTokens, last = rows.position(row_end - 1) / kSplitTokens;
  for (int split = first; split <= last; split++) {
    attend_part<Codec>(rows, split);
    for (int i = 0; i < rows.queries; i++) {
      combine(rows.total.o + int64_t(i) * rows.padded, &rows.total.m[i], &rows.total.l[i],
              rows.part.o + int64_t(i) * rows.padded, rows.part.m[i], rows.part.l[i], rows.padded);
    }
  }
  for (int i = 0; i < rows.queries; i++) {
    const int row = row_begin + i / rows.group;
    if (args.sinks != nullptr) {
      add_sink(rows.total.o + int64_t(i) * rows.padded, rows.total.m[i], &rows.total.l[i],
               args.sinks[kv_head * rows.group + i % rows.group], rows.padded);
    }
    finish(rows.total.o + int64_t(i) * rows.padded, rows.total.l[i], rows.head_dim,
           args.out + row * args.out_stride + int64_t(kv_head * rows.group + i % rows.group) * rows.head_dim,
           &args.faults[row]);
  }
}

template <class Codec>
static void attend_split(const AttendArgs& args, int kv_head, int row_begin, int row_end, int split,
                         float* partial, std::byte* scratch) {
  if (row_begin >= row_end) return;
  Rows rows(args, kv_head, row_begin, row_end, scratch);
  rows.pack_queries();
  attend_part<Codec>(rows, split);
  for (int i = 0; i < rows.queries; i++, partial += partial_floats(rows.head_dim)) {
    memcpy(partial, rows.part.o + int64_t(i) * rows.padded, size_t(rows.head_dim) * 4);
    partial[rows.head_dim] = rows.part.m[i];
    partial[rows.head_dim + 1] = rows.part.l[i];
  }
}

static void attend_combine(const AttendArgs& args, int kv_head, int row_begin, int row_end, int splits,
                           const float* partial) {
  const KvLayout& layout = *args.kv->layout;
  const int head_dim = layout.head_dim, group = args.heads / layout.kv_heads;
  const int queries = (row_end - row_begin) * group;
  const int64_t size = partial_floats(head_dim);
  constexpr int kPiece = 256;  // of head dim; m and l are the same for each
  for (int i = 0; i < queries; i++) {
    const int row = row_begin + i / group;
    float* out = args.out + row * args.out_stride + int64_t(kv_head * group + i % group) * head_dim;
    for (int d = 0; d < head_dim; d += kPiece) {
      const int piece = head_dim - d < kPiece ? head_dim - d : kPiece;
      alignas(64) float o[kPiece] = {};
      float m = kNoScore, l = 0.0f;
      for (int split = 0; split < splits; split++) {
        const float* part = partial + (int64_t(split) * queries + i) * size;
        combine(o, &m, &l, part + d, part[head_dim], part[head_dim + 1], piece);
      }
      if (args.sinks != nullptr) add_sink(o, m, &l, args.sinks[kv_head * group + i % group], kPiece);
      finish(o, l, piece, out + d, &args.faults[row]);
    }
  }
}

template <class Codec>
static void kv_write(const KvView& kv, int layer, int32_t position, const float* k, const float* v,
                     uint8_t* fault) {
  const KvLayout& layout = *kv.layout;
  CHECK(!kv.runs.empty());
  const int64_t run = position / kPageTokens - kv.runs.data()[0].first_position / kPageTokens;
  CHECK(run >= 0 && run < int64_t(kv.runs.size()));
  std::byte* k_plane = kv.runs.data()[run].page + layout.plane_offset(layer, 0, 0);
  const size_t values = layout.plane_offset(layer, 0, 1) - layout.plane_offset(layer, 0, 0);
  const size_t head_bytes = layout.head_bytes();
  for (int h = 0; h < layout.kv_heads; h++, k_plane += head_bytes) {
    const int64_t at = int64_t(h) * layout.head_dim;
    if (Codec::write(k_plane, k_plane + values, layout.head_dim, position % kPageTokens, k + at, v + at)) {
      mark_fault(fault);
    }
  }
}

template <class Codec>
static void fill_codec(KernelTable& t) {
  t.kv_write[Codec::kIndex] = kv_write<Codec>;
  t.attend[Codec::kIndex] = attend<Codec>;
  t.attend_split[Codec::kIndex] = attend_split<Codec>;
}

}  // namespace invar::INVAR_ISA
