// KV writes and attention: a literal reading of docs/numerics.md, section 5, = the specification = every set,
// bit for bit, however the work is cut.

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fp_environment.h"
#include "base/testing/reduced.h"
#include "kernels/test_sequence.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every context and window of the list; heads, head_dim and rows take turns. Reduced: no long contexts, once
// each.
std::vector<Shape> shapes() {
  constexpr int kGroups[] = {1, 3, 4, 8}, kDims[] = {64, 24, 16, 128, 32, 6, 256},
                kRows[] = {1, 5, 17, 2, 40};
  std::vector<Shape> out;
  int i = 0;
  for (int context : {1, 63, 64, 65, 255, 256, 257, 700, 1500}) {
    if (reduced_tests() && context > 300) break;
    for (int window : {0, 13, 256, 300}) {
      for (int repeat = 0; repeat < (reduced_tests() ? 1 : 2); repeat++, i++) {
        const int kv_heads = 1 + i % 2;
        int d = kDims[i % 7];
        if (context * d > 40000) d = kDims[i % 3];
        out.push_back(
            {context, std::min(context, kRows[i % 5]), kGroups[i % 4] * kv_heads, kv_heads, d, window});
      }
    }
  }
  out.push_back({70, 70, 9, 3, 64, 0});  // SmolLM2, a whole prompt
  out.push_back({300, 2, 2, 2, 512, 0});
  out.push_back({300, 5, 8, 2, 64, 0, 3.5f});
  out.push_back({150, 40, 4, 1, 24, 70, 0.7f});
  out.push_back({66, 1, 2, 2, 32, 13, 50.0f});
  out.push_back({270, 5, 8, 2, 64, 0, 0, true});
  out.push_back({90, 20, 6, 3, 24, 16, 0, true});
  out.push_back({260, 2, 2, 1, 648, 0});
  return out;
}

// Sequences and their results under the literal reading; computed once for all sets.
struct Case {
  std::unique_ptr<Sequence> sequence;
  std::vector<float> want;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    FpEnvironment environment;
    std::vector<Case> v;
    uint64_t seed = 1;
    for (const Shape& shape : shapes()) {
      const KvCodec& codec = kv_codecs()[seed % 3];
      auto s = std::make_unique<Sequence>(shape, codec, specification(), seed++);
      auto want = literal(*s);
      v.push_back({std::move(s), std::move(want)});
    }
    return v;
  }();
  return all;
}

class Attention : public EverySet {
  FpEnvironment environment_;
};
INVAR_EVERY_SET(Attention);

#define EXPECT_SAME(want, got, s)                                                      \
  EXPECT_EQ(first_difference((want).data(), (got).data(), int64_t((want).size())), -1) \
      << name_of((s).shape(), *(s).layout().codec)

TEST_P(Attention, has_the_bits_of_the_literal_reading) {
  for (const Case& c : cases()) {
    std::vector<uint8_t> faults;
    const auto got = attend(set(), *c.sequence, &faults);
    EXPECT_SAME(c.want, got, *c.sequence);
    for (uint8_t f : faults)
      EXPECT_EQ(f, 0);
  }
}

TEST_P(Attention, every_codec_and_every_group_size_agrees) {
  uint64_t seed = 1000;
  for (const KvCodec& codec : kv_codecs()) {
    for (int group : {1, 2, 3, 4, 5, 6, 7, 8}) {
      for (int d : {64, 24}) {
        const Sequence s({130, 3, group * 2, 2, d, 0}, codec, set(), seed++);
        const auto want = literal(s), got = attend(set(), s);
        EXPECT_SAME(want, got, s);
      }
    }
  }
}

TEST_P(Attention, rows_cut_anywhere_give_the_same_bits) {
  for (const Case& c : cases()) {
    const Sequence& s = *c.sequence;
    TestRandom random(7);
    for (int way = 0; way < 2; way++) {  // one by one, then at random
      std::vector<float> out;
      std::vector<uint8_t> faults;
      const AttendArgs args = s.args(out, faults);
      const Scratch scratch(
          set().attend_scratch(args.rows, args.heads / s.shape().kv_heads, s.shape().head_dim));
      for (int h = 0; h < s.shape().kv_heads; h++) {
        for (int begin = 0; begin < args.rows;) {
          const int end = way == 0 ? begin + 1 : std::min(args.rows, begin + 1 + random.below(9));
          set().attend[s.layout().codec->index](args, h, begin, end, scratch.get());
          begin = end;
        }
      }
      EXPECT_SAME(c.want, out, s);
    }
  }
}

TEST_P(Attention, splits_combined_equal_the_whole) {
  for (const Case& c : cases()) {
    const Sequence& s = *c.sequence;
    std::vector<float> out;
    std::vector<uint8_t> faults;
    const AttendArgs args = s.args(out, faults);
    const int group = args.heads / s.shape().kv_heads, splits = (s.shape().context + 255) / 256;
    const Scratch scratch(set().attend_scratch(args.rows, group, s.shape().head_dim));
    const int begin = args.rows / 2;  // in two pieces
    for (int h = 0; h < s.shape().kv_heads; h++) {
      for (const auto& [from, to] : {std::pair{0, begin}, std::pair{begin, args.rows}}) {
        const int64_t size = int64_t(to - from) * group * partial_floats(s.shape().head_dim);
        std::vector<float> partial(size_t(size) * splits);
        for (int i = splits - 1; i >= 0; i--) {
          set().attend_split[s.layout().codec->index](args, h, from, to, i, partial.data() + size * i,
                                                      scratch.get());
        }
        set().attend_combine(args, h, from, to, splits, partial.data());
      }
    }
    EXPECT_SAME(c.want, out, s);
  }
}

TEST_P(Attention, slots_behind_the_context_are_never_seen) {
  for (const KvCodec& codec : kv_codecs()) {
    Sequence s({700, 5, 3, 1, 64, 0}, codec, specification(), 5);
    const auto want = attend(set(), s);
    s.spoil_unwritten_slots();
    EXPECT_SAME(want, attend(set(), s), s);
  }
}

TEST_P(Attention, pages_before_a_window_may_be_gone) {
  Sequence s({1500, 4, 4, 2, 32, 300}, kv_codecs()[0], specification(), 6);
  const auto want = attend(set(), s);
  s.view().runs = s.view().runs.subspan((1496 - 300) / 64);
  EXPECT_SAME(want, attend(set(), s), s);
}

TEST_P(Attention, is_near_the_exact_result) {
  for (const Case& c : cases()) {
    const Sequence& s = *c.sequence;
    const auto got = attend(set(), s);
    const int d_count = s.shape().head_dim, row = s.shape().rows - 1, head = s.shape().heads - 1;
    const int kv_head = s.shape().kv_heads - 1, pos = s.first_position() + row;
    const float* q = &s.q[size_t(row) * s.stride() + size_t(head) * d_count];
    std::vector<double> score, o(d_count, 0.0);
    double highest = -1e300, sum = 0;
    const int low = s.shape().window ? std::max(0, pos - s.shape().window + 1) : 0;
    for (int t = low; t <= pos; t++) {
      double x = 0;
      for (int d = 0; d < d_count; d++)
        x += double(q[d]) * s.stored(kv_head, t, 0, d);
      x *= s.scale();
      if (s.shape().softcap > 0) x = s.shape().softcap * std::tanh(x / s.shape().softcap);
      score.push_back(x);
      highest = std::max(highest, score.back());
    }
    for (int t = low; t <= pos; t++) {
      const double p = std::exp(score[size_t(t - low)] - highest);
      sum += p;
      for (int d = 0; d < d_count; d++)
        o[size_t(d)] += p * s.stored(kv_head, t, 1, d);
    }
    if (s.shape().sinks) sum += std::exp(double(s.sinks[size_t(head)]) - highest);
    for (int d = 0; d < d_count; d++) {
      EXPECT_NEAR(got[size_t(row) * s.stride() + size_t(head) * d_count + d], o[size_t(d)] / sum, 2e-5);
    }
  }
}

TEST_P(Attention, a_bad_row_faults_alone) {
  const KvCodec& codec = kv_codecs()[0];
  Sequence s({200, 9, 6, 2, 64, 0}, codec, specification(), 8);
  const auto want = attend(set(), s);
  for (float bad : {kNan, -kNan, kInf, -kInf, 3e38f, -3e38f}) {
    const float saved = s.q[size_t(4) * s.stride() + 3];
    s.q[size_t(4) * s.stride() + 3] = bad;
    std::vector<uint8_t> faults;
    const auto got = attend(set(), s, &faults);
    for (int r = 0; r < 9; r++) {
      EXPECT_EQ(faults[r], r == 4) << bad << " row " << r;
      if (r == 4) continue;
      EXPECT_EQ(first_difference(&want[size_t(r) * s.stride()], &got[size_t(r) * s.stride()], s.stride()),
                -1);
    }
    s.q[size_t(4) * s.stride() + 3] = saved;
  }
}

// f32 KV of one head, context 96 or 100 (whole and cut blocks of lanes).
std::unique_ptr<Sequence> one_head(int context, int head_dim) {
  return std::make_unique<Sequence>(Shape{context, 1, 1, 1, head_dim, 0}, *find_kv_codec("f32"),
                                    specification(), 9);
}

TEST_P(Attention, one_score_of_minus_infinity_faults) {
  // It looks like a masked slot, so the softmax alone would not notice.
  for (int context : {96, 100}) {
    for (int bad : {0, 15, 40, 64, 95, context - 1}) {
      const auto s = one_head(context, 16);
      std::vector<uint8_t> faults;
      for (int d = 0; d < 16; d++) {
        s->q[d] = 1e30f;
        for (int p = 0; p < context; p++)
          s->keys[size_t(p) * 16 + d] = p == bad ? -1e20f : 1e-30f;
      }
      for (int p = 0; p < context; p++)
        s->write(specification(), p);
      attend(set(), *s, &faults);
      EXPECT_EQ(faults[0], 1) << bad << " of " << context;
    }
  }
}

TEST_P(Attention, scores_that_all_lie_below_the_start_of_the_maximum_fault) {
  const auto s = one_head(70, 16);
  for (int d = 0; d < 16; d++) {
    s->q[d] = 1e30f;
    for (int p = 0; p < 70; p++)
      s->keys[size_t(p) * 16 + d] = -1e3f;
  }
  for (int p = 0; p < 70; p++)
    s->write(specification(), p);
  std::vector<uint8_t> faults;
  attend(set(), *s, &faults);
  EXPECT_EQ(faults[0], 1);
}

TEST_P(Attention, large_scores_of_either_sign_follow_the_rule) {
  for (float scale : {-1e3f, 30.0f, 1e6f}) {
    Sequence s({700, 5, 6, 2, 64, 0}, kv_codecs()[0], specification(), 12);
    // Positive keys: all scores have the sign of q, some heads far below zero, some far above.
    for (float& k : s.keys)
      k = std::fabs(k);
    for (float& x : s.q)
      x = std::fabs(x) * scale;
    for (int p = 0; p < 700; p++)
      s.write(specification(), p);
    std::vector<uint8_t> faults;
    const auto want = literal(s), got = attend(set(), s, &faults);
    EXPECT_SAME(want, got, s);
    for (uint8_t f : faults)
      EXPECT_EQ(f, 0);
  }
}

TEST_P(Attention, a_zero_result_is_positive) {
  // The sums of split 0 and of page 4 are negative, page 5 brings far larger scores, which scale both by +0,
  // and adds only -0: without the last addition the result is -0.
  const auto s = one_head(384, 16);
  for (int d = 0; d < 16; d++) {
    s->q[d] = 1;
    for (int p = 0; p < 384; p++) {
      s->keys[size_t(p) * 16 + d] = p < 256 ? 0.0f : p < 320 ? 50.0f : 100.0f;
      s->values[size_t(p) * 16 + d] = p < 320 ? -1.0f : -0.0f;
    }
  }
  for (int p = 0; p < 384; p++)
    s->write(specification(), p);
  const auto got = attend(set(), *s);
  for (int d = 0; d < 16; d++)
    EXPECT_EQ(float_bits(got[d]), 0u);
}

TEST_P(Attention, kv_write_stores_the_same_bytes_and_saturates) {
  for (const KvCodec& codec : kv_codecs()) {
    for (int d : {6, 16, 24, 64}) {
      for (int position : {0, 17, 63, 64, 129}) {
        Sequence a({130, 1, 2, 2, d, 0}, codec, specification(), 3), b({130, 1, 2, 2, d, 0}, codec, set(), 3);
        const float special[] = {0.0f,           -0.0f,           65504.0f, 65519.9f,  65520.0f, -1e6f,
                                 1e-8f,          6e-8f,           1e-40f,   3.39e38f,  -3.4e38f, 1.0f,
                                 1.00048828125f, 0x1.fffffep127f, 0x1p-24f, 0x1.8p-25f};
        for (Sequence* s : {&a, &b}) {
          for (int i = 0; i < 2 * d; i++) {
            s->keys[size_t(position) * 2 * d + i] = special[i % 16];
            s->values[size_t(position) * 2 * d + i] = special[(i + 5) % 16];
          }
          s->write(s == &a ? specification() : set(), position);
          EXPECT_EQ(s->write_fault, 0);
        }
        const float limit = codec.dtype == Dtype::kF16    ? 65504.0f
                            : codec.dtype == Dtype::kBF16 ? 0x1.fep127f
                                                          : 0x1.fffffep127f;
        for (int h = 0; h < 2; h++) {
          for (int p = 0; p < 130; p++) {
            for (int plane = 0; plane < 2; plane++) {
              for (int i = 0; i < d; i++) {
                const float want = a.stored(h, p, plane, i), got = b.stored(h, p, plane, i);
                ASSERT_EQ(float_bits(want), float_bits(got)) << codec.name << " d " << d << " position " << p;
                const float x = (plane ? a.values : a.keys)[(size_t(p) * 2 + h) * d + i];
                const float clamped = x > limit ? limit : x < -limit ? -limit : x;
                const float rounded = codec.dtype == Dtype::kF16    ? f16_to_f32(f32_to_f16(clamped))
                                      : codec.dtype == Dtype::kBF16 ? bf16_to_f32(f32_to_bf16(clamped))
                                                                    : clamped;
                ASSERT_EQ(float_bits(rounded), float_bits(want)) << codec.name << " " << x;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(Attention, kv_write_stores_zero_for_nan_and_infinity_and_faults) {
  for (const KvCodec& codec : kv_codecs()) {
    for (float bad : {kNan, -kNan, kInf, -kInf}) {
      for (int at : {0, 15, 23}) {
        for (int plane = 0; plane < 2; plane++) {
          Sequence s({70, 1, 1, 1, 24, 0}, codec, set(), 4);
          (plane ? s.values : s.keys)[size_t(66) * 24 + at] = bad;
          s.write(set(), 66);
          EXPECT_EQ(s.write_fault, 1);
          EXPECT_EQ(float_bits(s.stored(0, 66, plane, at)), 0u);
          EXPECT_EQ(s.stored(0, 66, 1 - plane, at) == 0, false);
        }
      }
    }
  }
}

}  // namespace
}  // namespace invar
