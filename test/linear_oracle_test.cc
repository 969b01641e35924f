// Linear layers over real quantized tensors: packed by Model::load, run by every instruction set, compared
// with section 2 of docs/numerics.md in double precision on the same fp32 input, within 1e-6 of the sum of
// absolute terms. (Float weights: section 3, the plain sum.)

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/fp_environment.h"
#include "block_values.h"
#include "golden.h"
#include "kernels/kernel_table.h"
#include "model_runner.h"
#include "tensor/buffer.h"

namespace invar {
namespace {

constexpr double kTolerance = 1e-6;

// One output channel in double: the value and the sum of absolute terms.
struct Exact {
  double value = 0, terms = 0;
};

// A row of a stored tensor with the contract's flush, scales and biases per element.
StoredRow flushed_row(const SourceTensor& t, int64_t r) {
  StoredRow row = stored_row(t, r);
  for (std::vector<double>* v : {&row.scale, &row.bias})
    for (double& x : *v)
      if (std::abs(x) < 0x1p-40) x = 0;
  return row;
}

struct Activation {
  std::vector<int> q;
  std::vector<double> scale;  // per element, that of its group of 32
};

Activation quantized(const std::vector<float>& x) {
  Activation a{std::vector<int>(x.size()), std::vector<double>(x.size())};
  for (size_t g = 0; g < x.size(); g += 32) {
    float top = 0;
    for (size_t i = g; i < g + 32; ++i)
      top = std::max(top, std::abs(x[i]));
    if (top < 0x1p-48f) continue;
    const float inv = 127 / top;
    for (size_t i = g; i < g + 32; ++i) {
      a.q[i] = int(std::nearbyintf(x[i] * inv));
      a.scale[i] = top / 127;
    }
  }
  return a;
}

Exact exact_channel(const StoredRow& row, const std::vector<float>& x, const Activation& a) {
  Exact e;
  if (row.scale.empty()) {
    for (size_t k = 0; k < x.size(); ++k) {
      e.value += row.code[k] * x[k];
      e.terms += std::abs(row.code[k] * x[k]);
    }
    return e;
  }
  for (size_t g = 0; g < x.size(); g += size_t(row.group)) {
    double d = 0, sum = 0;
    for (size_t k = g; k < g + size_t(row.group); ++k)
      d += row.code[k] * a.q[k], sum += a.q[k];
    for (const double term : {d * row.scale[g / size_t(row.group)] * a.scale[g],
                              sum * row.bias[g / size_t(row.group)] * a.scale[g]}) {
      e.value += term * row.factor;
      e.terms += std::abs(term * row.factor);
    }
  }
  return e;
}

// kind: 0 ordinary, 1 with outliers, 2 tiny, 3 with an empty group.
std::vector<float> test_input(int kind, int64_t cols, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t(cols), 0.0f);
  for (float& v : x)
    v = normal(rng) * (kind == 1 && rng() % 50 == 0 ? 60.0f : kind == 2 ? 1e-6f : 1.0f);
  if (kind == 3) std::fill(x.begin(), x.begin() + 32, 0.0f);  // an empty group
  return x;
}

class LinearOracle : public testing::TestWithParam<const char*> {};

TEST_P(LinearOracle, every_layer_and_set_is_within_1e_6_of_the_absolute_terms) {
  const FpEnvironment environment;
  const auto model = ModelRunner::load(oracle_path(GetParam()));
  const Graph& graph = model->graph();
  const bool interleaved = model->source().gguf() != nullptr && model->source().architecture() == "llama";
  std::mt19937 rng(7);
  int matrices = 0;
  double worst = 0;
  for (size_t w = 0; w < graph.weights.size(); ++w) {
    if (graph.weights[w].kind != Weight::Kind::kMatrix) continue;
    const PackedMatrix& packed = model->weights().matrices[w];
    const SourceTensor* stored = model->source().find(graph.weights[w].name);
    ASSERT_NE(stored, nullptr) << graph.weights[w].name;
    ++matrices;

    constexpr int kRows = 13;  // more than the kernels for few rows take, and one that is left over
    std::vector<float> x;
    std::vector<Activation> activations;
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < kRows; ++r) {
      inputs.push_back(test_input(r % 4, packed.cols, rng));
      activations.push_back(quantized(inputs.back()));
      x.insert(x.end(), inputs.back().begin(), inputs.back().end());
    }
    std::vector<Exact> exact;
    for (int64_t c = 0; c < packed.rows; ++c) {
      int64_t from = c;
      if (interleaved && graph.weights[w].rotary_heads > 0) {
        const int64_t dim = packed.rows / graph.weights[w].rotary_heads, in_head = c % dim;
        from = c - in_head + 2 * (in_head % (dim / 2)) + in_head / (dim / 2);
      }
      const StoredRow row = flushed_row(*stored, from);
      for (int r = 0; r < kRows; ++r)
        exact.push_back(exact_channel(row, inputs[size_t(r)], activations[size_t(r)]));
    }

    for (const KernelTable* table : kernel_tables()) {
      if (!cpu_supports(*table)) continue;
      const size_t q_stride = quantized_row_bytes(packed.cols);
      Buffer q(q_stride * kRows);
      if (!is_float(*packed.form)) {
        for (int r = 0; r < kRows; ++r) {
          uint8_t fault = 0;
          table->quantize_row(&x[size_t(r) * packed.cols], packed.cols, q.data() + size_t(r) * q_stride,
                              &fault);
          ASSERT_EQ(fault, 0);
        }
      }
      for (const int rows : {4, kRows}) {
        std::vector<float> y(size_t(packed.rows) * kRows);
        table->linear(packed, 0, tile_count(packed.rows), {rows, x.data(), packed.cols, q.data(), q_stride},
                      {y.data(), packed.rows, nullptr, false});
        for (int64_t c = 0; c < packed.rows; ++c) {
          for (int r = 0; r < rows; ++r) {
            const Exact& e = exact[size_t(c) * kRows + size_t(r)];
            const double error = std::abs(double(y[size_t(r) * packed.rows + c]) - e.value);
            ASSERT_LE(error, kTolerance * e.terms) << graph.weights[w].name << " channel " << c << ", input "
                                                   << r << " of " << rows << ", " << table->name;
            if (e.terms > 0) worst = std::max(worst, error / e.terms);
          }
        }
      }
    }
  }
  EXPECT_GT(matrices, 7);
  RecordProperty("worst_error_over_terms", std::to_string(worst * 1e6) + "e-6");
}

INSTANTIATE_TEST_SUITE_P(
    Types, LinearOracle,
    testing::Values("gguf/quant/llama-q256-F16.gguf", "gguf/quant/llama-q256-BF16.gguf",
                    "gguf/quant/llama-q256-Q4_0.gguf", "gguf/quant/llama-q256-Q4_1.gguf",
                    "gguf/quant/llama-q256-Q5_0.gguf", "gguf/quant/llama-q256-Q5_1.gguf",
                    "gguf/quant/llama-q256-Q8_0.gguf", "gguf/quant/llama-q256-Q2_K.gguf",
                    "gguf/quant/llama-q256-Q3_K.gguf", "gguf/quant/llama-q256-Q4_K.gguf",
                    "gguf/quant/llama-q256-Q5_K.gguf", "gguf/quant/llama-q256-Q6_K.gguf",
                    "gguf/quant/llama-q256-Q4_K_M-mix.gguf", "gguf/quant/llama-q256-MXFP4.gguf",
                    "gguf/quant/llama-q256-IQ4_NL.gguf", "gguf/quant/llama-q256-IQ4_XS.gguf",
                    "gguf/quant/llama-q256-IQ2_XXS.gguf", "gguf/quant/llama-q256-IQ2_XS.gguf",
                    "gguf/quant/llama-q256-IQ2_S.gguf", "gguf/quant/llama-q256-IQ3_XXS.gguf",
                    "gguf/quant/llama-q256-IQ3_S.gguf", "gguf/quant/llama-q256-TQ2_0.gguf",
                    "gguf/quant/qwen3-q256-Q4_K.gguf", "mlx/llama-q256-q2g64", "mlx/llama-q256-q4g32",
                    "mlx/llama-q256-mixed", "mlx/llama-q256-mxfp4", "mlx/llama-q256-nvfp4",
                    "mlx/llama-q256-mxfp8", "mlx/qwen3-q256-q4g64", "quantized/llama-gptq",
                    "quantized/llama-gptq-sym", "quantized/llama-awq", "quantized/llama-fp8",
                    "quantized/llama-fp8-rows", "quantized/llama-nvfp4", "quantized/llama-nvfp4.gguf"),
    [](const auto& info) {
      std::string s = info.param;
      for (char& c : s) {
        if (!isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return s;
    });

TEST(LinearOracleSets, sets_that_this_cpu_lacks_are_reported) {
  std::string missing;
  for (const KernelTable* table : kernel_tables()) {
    if (!cpu_supports(*table)) missing += std::string(missing.empty() ? "" : ", ") + table->name;
  }
  if (!missing.empty()) GTEST_SKIP() << "NOT RUN: this CPU lacks the instruction set " << missing;
}

}  // namespace
}  // namespace invar
