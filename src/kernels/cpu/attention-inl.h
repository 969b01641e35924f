#pragma once
// Attention over KV pages (docs/numerics.md, section 5), written once over the 16-lane vectors of the set
// being compiled. A query is one (row, query head); queries of one KV head are processed in blocks that share
// every load of keys and values. Blocking, skipped slots and the order of blocks never change a bit: within a
// query, positions of a page, pages of a split and splits go in ascending order, and each position is a lane
// of its own.
//
// Scratch (attend_scratch bytes, 64-byte aligned), f32, n queries, D = head_dim rounded up to 16:
//   queries [blocks][head_dim][block size]; part O [n][D], m [n], l [n]; total O [n][D], m [n], l [n];
//   widened page: keys [head_dim][64], values [64][D].

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/cpu/functions-inl.h"
#include "kernels/kernel_table.h"
#include "tensor/exact_math.h"

namespace invar::INVAR_ISA {
static constexpr int kMaxHeadDim = 512;
}
#include "kv/codecs/raw-inl.h"

namespace invar::INVAR_ISA {

static constexpr float kNoScore = -0x1p100f;  // m of a query that has seen nothing
// Queries of a block: their accumulators fill the registers but for the operands.
static constexpr int kAccumulators = kVfRegisters == 32 ? 24 : kVfRegisters - 2;
static constexpr int kBlock = kVfRegisters == 4 ? 2 : 6;
static constexpr int kLargestBlock = 8;  // of any set; sizes scratch

struct FloatSource {
  const float* p;
  template <int W>
  __attribute__((always_inline)) void ask(int64_t) const {}
  __attribute__((always_inline)) Vf at(int64_t i) const { return load(p + i); }
};

// Running softmax of n queries: O [n][stride], m [n], l [n].
struct State {
  float* o;
  float* m;
  float* l;
  int stride;
};

// One block of queries against one page.
struct BlockTask {
  const float* q;  // [head_dim][Q]
  int head_dim;
  int value_stride;  // elements between positions of the values
  float scale;
  int begin[kLargestBlock], end[kLargestBlock];  // slots that each query sees
  int first, last;                               // union of them
  State state;                                   // of the block's first query
  bool* bad;                                     // [Q]: set where a score is NaN or infinite
};

// 16-lane vectors of an accumulator tile beside Q queries.
constexpr int tile_width(int queries, int limit) {
  int width = 1;
  while (width * 2 <= limit && width * 2 * queries <= kAccumulators)
    width *= 2;
  return width;
}

// acc[i][w] += q(i) * v(w). The order keeps few operands beside the accumulators.
template <int Q, int W, class Broadcast, class Load>
INVAR_INLINE void outer_product(Vf (&acc)[Q][W], Broadcast q, Load v) {
  if constexpr (W == 1) {
    const Vf x = v(0);
    for (int i = 0; i < Q; i++)
      acc[i][0] = fma(q(i), x, acc[i][0]);
  } else {
    Vf x[Q];
    for (int i = 0; i < Q; i++)
      x[i] = q(i);
    for (int w = 0; w < W; w++) {
      const Vf y = v(w);
      for (int i = 0; i < Q; i++)
        acc[i][w] = fma(x[i], y, acc[i][w]);
    }
  }
}

// s [Q][64]: scores of positions [16*column, 16*(column+P)), scaled.
template <int Q, int P, class Keys>
INVAR_INLINE void score_tile(const BlockTask& t, Keys keys, int column, float* s) {
  int64_t step = int64_t(column / P) * t.head_dim;
  for (int parity = 0; parity < 2; parity++) {
    Vf acc[Q][P];
    for (int i = 0; i < Q; i++) {
      for (int w = 0; w < P; w++)
        acc[i][w] = zero();
    }
    for (int d = parity; d < t.head_dim; d += 2, step++) {
      keys.template ask<P>(step);
      outer_product<Q, P>(
          acc, [&](int i) __attribute__((always_inline)) { return set1(t.q[d * Q + i]); },
          [&](int w) __attribute__((always_inline)) {
            return keys.at(int64_t(d) * kPageTokens + (column + w) * 16);
          });
    }
    for (int i = 0; i < Q; i++) {
      for (int w = 0; w < P; w++) {
        float* at = s + i * kPageTokens + (column + w) * 16;
        store(at, parity == 0 ? acc[i][w] : mul(add(load(at), acc[i][w]), set1(t.scale)));
      }
    }
    // The even sums wait in memory: kept in registers they would push out the odd ones.
    __asm__ volatile("" ::: "memory");
  }
}

// O = O*c + sum of p_j V_j for W vectors of head dim from `dim` on.
template <int Q, int W, class Values>
INVAR_INLINE void value_tile(const BlockTask& t, Values values, int dim, const float* p, const float* c) {
  Vf acc[Q][W];
  for (int i = 0; i < Q; i++) {
    for (int w = 0; w < W; w++) {
      acc[i][w] = mul(load(t.state.o + i * t.state.stride + dim + w * 16), set1(c[i]));
    }
  }
  const int64_t step = int64_t(dim / 16 / W) * kPageTokens;
  for (int j = t.first; j < t.last; j++) {
    values.template ask<W>(step + j);
    outer_product<Q, W>(
        acc, [&](int i) __attribute__((always_inline)) { return set1(p[i * kPageTokens + j]); },
        [&](int w)
            __attribute__((always_inline)) { return values.at(int64_t(j) * t.value_stride + dim + w * 16); });
  }
  for (int i = 0; i < Q; i++) {
    for (int w = 0; w < W; w++)
      store(t.state.o + i * t.state.stride + dim + w * 16, acc[i][w]);
  }
}

template <int Q, class Keys, class Values>
static void attend_block(const BlockTask& t, Keys keys, Values values) {
  constexpr int kLanes = kPageTokens / 16;
  alignas(64) float s[Q * kPageTokens];
  alignas(64) float next[16], shrink[16];

  // Whole tiles of positions; those outside every query's view are masked below whatever they hold.
  constexpr int P = tile_width(Q, kLanes);
  for (int column = t.first / 16 / P * P; column * 16 < t.last; column += P) {
    score_tile<Q, P>(t, keys, column, s);
  }

  store(shrink, zero());
  for (int i = 0; i < Q; i++) {
    float* row = s + i * kPageTokens;
    Vf highest = set1(-__builtin_inff()), check = zero();
    for (int b = 0; b < kLanes; b++) {
      const bool whole = t.begin[i] <= b * 16 && b * 16 + 16 <= t.end[i];
      Vf x;
      if (whole) {
        x = load(row + b * 16);
        check = fma(x, zero(), check);  // NaN from any NaN or infinity
      } else if (t.begin[i] < b * 16 + 16 && b * 16 < t.end[i]) {
        const Vi slot = add_i(lane_ids(), set1_i(b * 16));
        const Mask seen = both(ge_i(slot, set1_i(t.begin[i])), gt_i(set1_i(t.end[i]), slot));
        x = load(row + b * 16);
        check = fma(select(seen, x, zero()), zero(), check);
        x = select(seen, x, set1(-__builtin_inff()));
        store(row + b * 16, x);
      } else {
        x = set1(-__builtin_inff());
        store(row + b * 16, x);
      }
      highest = max(x, highest);
    }
    if (any(is_nan(check))) t.bad[i] = true;
    const float page = reduce_max(highest), m = t.state.m[i];
    next[i] = page > m ? page : m;
    shrink[i] = m - next[i];
  }
  store(shrink, exp_or_zero(load(shrink)));
  for (int i = 0; i < Q; i++) {
    float* row = s + i * kPageTokens;
    Vf sums = zero();
    for (int b = 0; b < kLanes; b++) {
      const Vf p = exp_or_zero(sub(load(row + b * 16), set1(next[i])));
      store(row + b * 16, p);
      sums = add(sums, p);
    }
    t.state.l[i] = fma_f32(t.state.l[i], shrink[i], reduce_add(sums));
    t.state.m[i] = next[i];
  }

  constexpr int kWide = tile_width(Q, 4);
  int dim = 0;
  for (; dim + kWide * 16 <= t.state.stride; dim += kWide * 16)
    value_tile<Q, kWide>(t, values, dim, s, shrink);
  for (; dim < t.state.stride; dim += 16)
    value_tile<Q, 1>(t, values, dim, s, shrink);
}

template <class Keys, class Values>
static void attend_block_of(int queries, const BlockTask& t, Keys keys, Values values) {
  switch (queries) {
    case 1:
      return attend_block<1>(t, keys, values);
    case 2:
      return attend_block<2>(t, keys, values);
    default:
      break;
  }
  if constexpr (kBlock > 2) {
    switch (queries) {
      case 3:
        return attend_block<3>(t, keys, values);
      case 4:
        return attend_block<4>(t, keys, values);
      case 5:
        return attend_block<5>(t, keys, values);
      case 6:
        return attend_block<6>(t, keys, values);
      default:
        break;
    }
  }
  CHECK(false);
}

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
    CHECK(head_dim <= kMaxHeadDim && a.heads % layout.kv_heads == 0);
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

INVAR_INLINE void mark_fault(uint8_t* fault) {
  __atomic_store_n(fault, uint8_t(1), __ATOMIC_RELAXED);  // heads of a row may run on several threads
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
  CHECK(head_dim <= kMaxHeadDim);
  for (int i = 0; i < queries; i++) {
    alignas(64) float o[kMaxHeadDim] = {};
    float m = kNoScore, l = 0.0f;
    for (int split = 0; split < splits; split++) {
      const float* part = partial + (int64_t(split) * queries + i) * size;
      combine(o, &m, &l, part, part[head_dim], part[head_dim + 1], head_dim);
    }
    const int row = row_begin + i / group;
    finish(o, l, head_dim, args.out + row * args.out_stride + int64_t(kv_head * group + i % group) * head_dim,
           &args.faults[row]);
  }
}

template <class Codec>
static void kv_write(const KvView& kv, int layer, int32_t position, const float* k, const float* v,
                     uint8_t* fault) {
  const KvLayout& layout = *kv.layout;
  CHECK(layout.head_dim <= kMaxHeadDim && !kv.runs.empty());
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
