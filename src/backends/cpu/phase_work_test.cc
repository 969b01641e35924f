// What the executor tells a trace: every phase by its nodes, with what it has to read and compute.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "backends/cpu/executor.h"
#include "backends/cpu/testing/interpreter.h"
#include "backends/cpu/testing/random_model.h"
#include "base/trace.h"

namespace invar {
namespace {

class Collected final : public TraceSink {
 public:
  Collected() { set_trace_sink(this); }
  ~Collected() override { set_trace_sink(nullptr); }
  void take(const TraceSpan& span) override {
    EXPECT_LE(span.begin_ns, span.end_ns);
    if (span.kind != SpanKind::kPhase) return;
    SpanWork& work = works[span.name];
    work.rows += span.work.rows;
    work.bytes += span.work.bytes;
    work.macs += span.work.macs;
    work.float_macs += span.work.float_macs;
  }
  std::map<std::string, SpanWork> works;
};

TEST(PhaseWork, is_told_of_every_phase_while_somebody_listens) {
  constexpr int kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kFfn = 96, kVocab = 40, kRows = 5;
  test::Rng rng(1);
  test::Model model = test::make_model({.layers = 1,
                                        .hidden = kHidden,
                                        .heads = kHeads,
                                        .kv_heads = kKvHeads,
                                        .head_dim = kHeadDim,
                                        .rope_dim = kHeadDim,
                                        .ffn = kFfn,
                                        .vocab = kVocab},
                                       rng, find_kv_codec("f16"));
  double matrix_bytes = 0;
  for (PackedMatrix& m : model.weights.matrices) {
    if (m.data == nullptr) continue;
    m.form = find_packed_form("u4z8");
    m.data = model.bytes.emplace_back(m.bytes()).data();
    matrix_bytes += double(m.bytes());
  }
  ThreadPool pool({.threads = 1});
  const KernelTable& kernels = *choose_kernels("scalar-portable");
  auto executable = CpuExecutable::make(model.graph, model.weights, {.max_tokens = 8, .max_logit_rows = 8},
                                        kernels, cost_model(kernels.name), pool);
  ASSERT_TRUE(executable.ok());
  test::Pages pages(model);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5}, logit_rows = {0, 1, 2, 3, 4};
  const std::vector<SequenceRows> sequences = {{0, kRows, 0, pages.reserve(kRows)}};
  (*executable)->run({tokens, sequences, logit_rows});  // nobody listens
  const Collected collected;
  (*executable)->run({tokens, sequences, logit_rows});

  double bytes = 0, macs = 0;
  for (const auto& [name, work] : collected.works) {
    bytes += work.bytes;
    macs += work.macs;
  }
  const double seen = double(kv_codecs()[0].planes[0].bytes(kHeadDim)) / kPageTokens * kRows * kKvHeads * 2;
  const SpanWork& attend = collected.works.at("attend");
  EXPECT_EQ(attend.rows, kRows);
  EXPECT_DOUBLE_EQ(attend.bytes, seen) << "keys and values of five positions, once";
  EXPECT_DOUBLE_EQ(attend.float_macs, 2.0 * kHeads * kHeadDim * (1 + 2 + 3 + 4 + 5));
  const SpanWork& qkv = collected.works.at("q+k+v");
  EXPECT_DOUBLE_EQ(qkv.macs, double(kRows) * kHidden * (kHeads + 2 * kKvHeads) * kHeadDim);
  EXPECT_DOUBLE_EQ(macs, double(kRows) * (double(kHidden) * (kHeads + 2 * kKvHeads) * kHeadDim +
                                          double(kHeads) * kHeadDim * kHidden + 3.0 * kHidden * kFfn +
                                          double(kHidden) * kVocab));
  EXPECT_TRUE(collected.works.contains("gate+up")) << "fused nodes go by their matrices";
  const double table = double(model.weights.matrices[model.graph.nodes[0].weight].bytes());
  EXPECT_DOUBLE_EQ(bytes, matrix_bytes - table + seen) << "every matrix once, of the embeddings only rows";
}

}  // namespace
}  // namespace invar
