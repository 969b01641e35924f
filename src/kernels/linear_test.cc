// Linear layers of every instruction set: the same bits as scalar-portable for every form, shape, number of
// rows and cut of the tiles, and the right values by an independent reading of docs/numerics.md, sections 2
// and 3.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "base/testing/reduced.h"
#include "kernels/linear_test_matrix.h"
#include "kernels/test_sets.h"

namespace invar {
namespace {

// Quantized rows of activations, as the engine keeps them.
struct QuantizedRows {
  QuantizedRows(const KernelTable& t, const std::vector<float>& x, int64_t rows, int64_t cols)
      : stride(quantized_row_bytes(cols)), faults(size_t(rows)), bytes(stride * size_t(rows)) {
    for (int64_t r = 0; r < rows; ++r) {
      t.quantize_row(x.data() + r * cols, cols, bytes.data + size_t(r) * stride, &faults[size_t(r)]);
    }
  }
  size_t stride;
  std::vector<uint8_t> faults;
  AlignedBytes bytes;
};

struct Layer {
  TestMatrix matrix;
  std::vector<float> x;  // [rows, cols]
  int64_t rows;
  std::vector<float> bias, before;  // [channels], [rows, y_stride]
  int64_t y_stride;
};

Layer make_layer(const PackedForm& form, int64_t rows, int64_t channels, int64_t cols, uint32_t seed) {
  Layer l{random_matrix(form, channels, cols, seed), {}, rows, {}, {}, channels + 3};
  l.x = random_rows(rows, l.matrix.cols, seed + 1);
  std::mt19937 rng(seed + 2);
  std::normal_distribution<float> normal(0, 1);
  l.bias.resize(size_t(channels));
  l.before.resize(size_t(rows * l.y_stride));
  for (float& v : l.bias)
    v = normal(rng);
  for (float& v : l.before)
    v = normal(rng);
  return l;
}

// The first `rows` rows of the layer; y comes back with everything around it as it was in `before`. epilogue:
// 1 adds the bias, 2 adds to y. cuts: the tile ranges, run in this order.
std::vector<float> run_layer(const KernelTable& t, const Layer& l, int64_t rows, int epilogue,
                             std::vector<int64_t> cuts = {}) {
  const QuantizedRows q(t, is_float(*l.matrix.form) ? std::vector<float>(l.x.size()) : l.x,
                        is_float(*l.matrix.form) ? 0 : rows, l.matrix.cols);
  std::vector<float> y = l.before;
  const LinearInput in{rows, l.x.data(), l.matrix.cols, q.bytes.data, q.stride};
  const LinearOutput out{y.data(), l.y_stride, epilogue & 1 ? l.bias.data() : nullptr, (epilogue & 2) != 0};
  if (cuts.empty()) cuts = {0, tile_count(l.matrix.rows)};
  // Odd ranges first: no range may depend on another one having run.
  for (size_t start : {size_t(1), size_t(0)}) {
    for (size_t i = start; i + 1 < cuts.size(); i += 2)
      t.linear(l.matrix.packed(), cuts[i], cuts[i + 1], in, out);
  }
  return y;
}

std::vector<int64_t> random_cuts(int64_t tiles, std::mt19937& rng) {
  std::vector<int64_t> cuts = {0, tiles};
  for (int i = int(rng() % 4); i > 0; --i)
    cuts.push_back(int64_t(rng() % uint64_t(tiles + 1)));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

size_t differing(const std::vector<float>& a, const float* b, size_t n) {
  size_t bad = 0;
  for (size_t i = 0; i < n; ++i)
    bad += std::memcmp(&a[i], &b[i], 4) != 0;
  return bad;
}

class LinearEverySet : public EverySet {};
INVAR_EVERY_SET(LinearEverySet);

struct Shape {
  int64_t channels, cols;
};
constexpr Shape kShapes[] = {{50, 32}, {17, 96}, {40, 576}, {33, 1536}, {24, 8960}};

// Reduced: the three short shapes, and every kind of row block once.
size_t shape_count() {
  return reduced_tests() ? 3 : std::size(kShapes);
}
int64_t most_rows() {
  return reduced_tests() ? 33 : 128;
}
std::vector<int64_t> row_counts() {
  if (reduced_tests()) return {1, 2, 3, 4, 5, 6, 7, 13, 16, 33};
  std::vector<int64_t> rows(17);
  std::iota(rows.begin(), rows.end(), 1);
  rows.insert(rows.end(), {31, 33, 64, 128});
  return rows;
}

// One layer per form and shape, with the specification's answers for every epilogue; shared by all sets.
struct Expected {
  Layer layer;
  std::vector<float> y[4];
};
const Expected& expected(size_t form, size_t shape) {
  static std::unique_ptr<Expected> all[std::size(kPackedForms)][std::size(kShapes)];
  auto& e = all[form][shape];
  if (!e) {
    e.reset(new Expected{make_layer(kPackedForms[form], most_rows(), kShapes[shape].channels,
                                    kShapes[shape].cols, uint32_t(1000 * form + shape)),
                         {}});
    for (int i = 0; i < 4; ++i)
      e->y[i] = run_layer(specification(), e->layer, most_rows(), i);
  }
  return *e;
}

TEST_P(LinearEverySet, linear_has_the_bits_of_the_specification_for_any_rows_and_cuts) {
  std::mt19937 rng(7);
  for (size_t f = 0; f < std::size(kPackedForms); ++f) {
    for (size_t s = 0; s < shape_count(); ++s) {
      const Expected& want = expected(f, s);
      for (const int64_t rows : row_counts()) {
        const int epilogue = int(rng() % 4);
        const auto cuts = random_cuts(tile_count(want.layer.matrix.rows), rng);
        const auto y = run_layer(set(), want.layer, rows, epilogue, cuts);
        const size_t n = size_t(rows * want.layer.y_stride);
        ASSERT_EQ(differing(y, want.y[epilogue].data(), n), 0u)
            << kPackedForms[f].name << " K=" << want.layer.matrix.cols << " rows=" << rows
            << " epilogue=" << epilogue;
        ASSERT_EQ(differing({y.begin() + int64_t(n), y.end()}, want.layer.before.data() + n, y.size() - n),
                  0u);
      }
    }
  }
}

TEST_P(LinearEverySet, float_forms_take_columns_that_are_no_multiple_of_four) {
  for (const PackedForm& form : kPackedForms) {
    if (!is_float(form)) continue;
    for (int64_t cols : {1, 2, 3, 5, 7, 257, 259}) {
      const Layer l = make_layer(form, 9, 19, cols, uint32_t(cols));
      const auto want = run_layer(specification(), l, 9, 0);
      for (int64_t rows : {1, 2, 3, 4, 9}) {
        const auto y = run_layer(set(), l, rows, 0);
        EXPECT_EQ(differing(y, want.data(), size_t(rows * l.y_stride)), 0u) << form.name << " K=" << cols;
      }
    }
  }
}

// 1 + 2^-23 + 2^-24 - 2^-60 lies just below the middle of two floats; rounded to double first it would be the
// middle.
TEST_P(LinearEverySet, a_sum_close_to_the_middle_of_two_floats_rounds_once) {
  const PackedForm* form = find_packed_form("f32");
  AlignedBytes bytes(tile_bytes(*form, 8));
  auto* w = reinterpret_cast<float*>(bytes.data);
  for (int c = 0; c < 16; ++c)
    w[c] = c % 2 ? 0x1.000002p0f : -0x1.000002p0f, w[4 * 16 + c] = c % 2 ? 0x1.00004p-24f : -0x1.00004p-24f;
  const float x[8] = {1, 0, 0, 0, 0x1.ffff8p-1f, 0, 0, 0};
  float y[16];
  set().linear({form, 16, 8, bytes.data}, 0, 1, {1, x, 8, nullptr, 0}, {y, 16, nullptr, false});
  for (int c = 0; c < 16; ++c)
    EXPECT_EQ(y[c], c % 2 ? 0x1.000002p0f : -0x1.000002p0f) << c;
}

// What a file of FP8 weights gave when it was packed to f32, and what it says about bits.
TEST_P(LinearEverySet, e4m3_has_the_bits_of_its_rounded_products_as_f32) {
  const PackedForm* f32 = find_packed_form("f32");
  for (const char* name : {"e4m3", "e4m3g32"}) {
    for (const int64_t cols : {32, 96, 576}) {
      const Layer l = make_layer(*find_packed_form(name), 14, 37, cols, uint32_t(cols));
      AlignedBytes bytes(matrix_bytes(*f32, l.matrix.rows, cols));
      for (int64_t n = 0; n < l.matrix.rows; ++n) {
        for (int64_t k = 0; k < cols; ++k) {
          const float w = float(l.matrix.code[size_t(n * cols + k)]);
          const size_t at = size_t(n / 16) * tile_bytes(*f32, cols) + size_t(k * 16 + n % 16) * 4;
          std::memcpy(bytes.data + at, &w, 4);
        }
      }
      for (const int64_t rows : {1, 3, 14}) {
        const auto y = run_layer(set(), l, rows, 0);
        std::vector<float> want = l.before;
        set().linear({f32, l.matrix.rows, cols, bytes.data}, 0, tile_count(l.matrix.rows),
                     {rows, l.x.data(), cols, nullptr, 0}, {want.data(), l.y_stride, nullptr, false});
        EXPECT_EQ(differing(y, want.data(), want.size()), 0u) << name << " K=" << cols << " rows=" << rows;
      }
    }
  }
}

TEST_P(LinearEverySet, bad_rows_are_flagged_and_leave_their_neighbours_alone) {
  for (const PackedForm& form : kPackedForms) {
    if (is_float(form)) continue;
    Layer l = make_layer(form, 14, 20, 576, 5);
    const auto good = run_layer(set(), l, l.rows, 0);
    const int64_t cols = l.matrix.cols;
    l.x[size_t(3 * cols + 40)] = std::numeric_limits<float>::quiet_NaN();
    l.x[size_t(6 * cols)] = std::numeric_limits<float>::infinity();
    l.x[size_t(13 * cols + cols - 1)] = -std::numeric_limits<float>::infinity();
    const QuantizedRows q(set(), l.x, l.rows, cols);
    const auto y = run_layer(set(), l, l.rows, 0);
    for (int64_t r = 0; r < l.rows; ++r) {
      const bool bad = r == 3 || r == 6 || r == 13;
      EXPECT_EQ(q.faults[size_t(r)], bad) << r;
      if (bad) continue;
      EXPECT_EQ(
          std::memcmp(&y[size_t(r * l.y_stride)], &good[size_t(r * l.y_stride)], size_t(l.matrix.rows) * 4),
          0)
          << form.name << " row " << r;
    }
  }
}

TEST_P(LinearEverySet, quantize_row_has_the_bits_of_the_specification) {
  for (int64_t cols : {32, 96, 576, 8960}) {
    const auto x = random_rows(32, cols, uint32_t(cols));
    const QuantizedRows want(specification(), x, 32, cols), got(set(), x, 32, cols);
    EXPECT_EQ(std::memcmp(want.bytes.data, got.bytes.data, want.stride * 32), 0) << cols;
  }
}

TEST_P(LinearEverySet, unpack_row_is_one_rounding_of_scale_times_code_plus_bias) {
  for (const PackedForm& form : kPackedForms) {
    const TestMatrix m = random_matrix(form, 21, 576, 3);
    std::vector<float> row(size_t(m.cols) + 1), want(row.size());
    for (int64_t n = 0; n < m.rows; ++n) {
      row.back() = want.back() = 42;
      set().unpack_row(m.packed(), n, row.data());
      for (int64_t k = 0; k < m.cols; ++k) {
        double v = m.code[size_t(n * m.cols + k)];
        if (!is_float(form)) {
          const size_t g = size_t(n * (m.cols / form.group) + k / form.group);
          v = m.scale[g] * v + m.bias[g];  // exact in double
        }
        const float weight = float(v);
        want[size_t(form.gathered ? m.column[size_t(k)] : k)] =
            form.factors ? weight * m.factor[size_t(n)] : weight;
      }
      ASSERT_EQ(differing(row, want.data(), row.size()), 0u) << form.name << " row " << n;
    }
  }
}

// ---- values: an independent emulation in double

// Codes and scale of a group of 32 activations, step by step as section 2 writes them.
void quantize_group(const float* x, double* q, double* scale) {
  float a = 0;
  for (int i = 0; i < 32; ++i)
    a = std::max(a, std::fabs(x[i]));
  if (a < 0x1p-48f) {
    std::fill(q, q + 32, 0.0), *scale = 0;
    return;
  }
  const float inverse = 127.0f / a;
  for (int i = 0; i < 32; ++i) {
    const float product = x[i] * inverse;
    q[i] = std::nearbyint(product);
  }
  *scale = a / 127.0f;
}

TEST(Linear, quantized_row_holds_codes_scales_and_sums) {
  const int64_t cols = 96;
  const auto x = random_rows(16, cols, 11);
  const QuantizedRows q(specification(), x, 16, cols);
  for (int64_t r = 0; r < 16; ++r) {
    const std::byte* row = q.bytes.data + size_t(r) * q.stride;
    const auto* codes = reinterpret_cast<const int8_t*>(row);
    const auto* scales = reinterpret_cast<const float*>(row + cols);
    const auto* scaled_sums = scales + cols / 32;
    const auto* sums = reinterpret_cast<const int16_t*>(scaled_sums + cols / 32);
    for (int64_t g = 0; g < cols / 32; ++g) {
      double want[32], scale, sum = 0;
      quantize_group(&x[size_t(r * cols + g * 32)], want, &scale);
      for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(codes[g * 32 + i], want[i]);
        sum += want[i];
      }
      EXPECT_EQ(scales[g], float(scale));
      EXPECT_EQ(scaled_sums[g], float(scale) * float(sum));
      EXPECT_EQ(sums[2 * g] + sums[2 * g + 1], sum);
      EXPECT_EQ(sums[2 * g], std::accumulate(want, want + 16, 0.0));
    }
  }
}

TEST(Linear, values_agree_with_an_emulation_in_double) {
  for (const PackedForm& form : kPackedForms) {
    for (const Shape shape : {Shape{19, 96}, Shape{35, 576}, Shape{16, 1536}}) {
      const Layer l = make_layer(form, 16, shape.channels, shape.cols, 77);
      const TestMatrix& m = l.matrix;
      const auto y = run_layer(specification(), l, l.rows, 3);
      for (int64_t r = 0; r < l.rows; ++r) {
        std::vector<double> x(size_t(m.cols)), scales(size_t(m.cols));
        for (int64_t k = 0; k < m.cols; k += is_float(form) ? 1 : 32) {
          if (is_float(form)) {
            x[size_t(k)] = l.x[size_t(r * m.cols + k)], scales[size_t(k)] = 1;
          } else {
            double scale;
            quantize_group(&l.x[size_t(r * m.cols + k)], &x[size_t(k)], &scale);
            std::fill_n(scales.begin() + k, 32, scale);
          }
        }
        for (int64_t n = 0; n < m.rows; ++n) {
          const size_t at = size_t(r * l.y_stride + n);
          double sum = 0, terms = 0;
          for (int64_t k = 0; k < m.cols; ++k) {
            const size_t i = size_t(n * m.cols + k);
            const size_t g = is_float(form) ? 0 : size_t(n * (m.cols / form.group) + k / form.group);
            const double xk = x[size_t(k)] * scales[size_t(k)];
            const double wk = is_float(form) ? m.code[i] : m.scale[g] * m.code[i];
            const double bk = is_float(form) ? 0 : m.bias[g];
            sum += wk * xk + bk * xk;
            terms += std::fabs(wk * xk) + std::fabs(bk * xk);
          }
          if (form.factors) sum *= m.factor[size_t(n)], terms *= std::fabs(m.factor[size_t(n)]);
          sum += double(l.bias[size_t(n)]) + l.before[at];
          terms += std::fabs(l.bias[size_t(n)]) + std::fabs(l.before[at]);
          ASSERT_NEAR(y[at], sum, 1e-6 * terms)
              << form.name << " K=" << m.cols << " row " << r << " channel " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace invar
