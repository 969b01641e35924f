// The logits of an outside, slow reading of docs/numerics.md (test/make/reference_bits.py froze them) come
// out of the engine bit for bit: every model, every instruction set of this CPU, prompts whole and token by
// token.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/hash.h"
#include "golden.h"
#include "kernels/kernel_table.h"
#include "model_runner.h"

namespace invar {
namespace {

const std::string kData = std::string(INVAR_TEST_DATA) + "/reference_bits/";

struct ReferenceSequence {
  std::vector<int32_t> ids;
  std::vector<std::string> row_hash;  // first 8 bytes of SHA-256, hex
  std::vector<int32_t> full_rows;     // positions whose rows are stored
  std::vector<float> rows;            // [full_rows, vocab]
};

struct Reference {
  std::string model;
  size_t vocab = 0;
  std::vector<ReferenceSequence> sequences;
};

Reference read_reference(const std::string& name) {
  const auto json = read_json(kData + name + ".json");
  const std::string rows = file_text(kData + name + ".rows");
  Reference r{std::string(json.at("model").as_string()), json.at("vocab").to_number<size_t>(), {}};
  size_t at = 0;
  for (const auto& s : json.at("sequences").as_array()) {
    ReferenceSequence q;
    q.ids = number_list<int32_t>(s.at("ids"));
    for (const auto& h : s.at("row_hash").as_array())
      q.row_hash.emplace_back(h.as_string());
    q.full_rows = number_list<int32_t>(s.at("full_rows"));
    q.rows.resize(q.full_rows.size() * r.vocab);
    if (at + q.rows.size() * 4 > rows.size()) throw std::runtime_error(name + ".rows is too short");
    std::memcpy(q.rows.data(), rows.data() + at, q.rows.size() * 4);
    at += q.rows.size() * 4;
    r.sequences.push_back(std::move(q));
  }
  return r;
}

std::string row_hash(const float* row, size_t vocab) {
  const Digest d = sha256(std::as_bytes(std::span(row, vocab)));
  return hex(std::span(d).first(8));
}

// What differs first, in words; "" when all bits agree.
std::string difference(const Reference& r, const ReferenceSequence& s, const std::vector<float>& got) {
  std::string report;
  for (size_t f = 0; f < s.full_rows.size() && report.empty(); ++f) {
    const size_t p = s.full_rows[f];
    const float *want = &s.rows[f * r.vocab], *have = &got[p * r.vocab];
    size_t wrong = 0, first = 0;
    for (size_t i = r.vocab; i-- > 0;) {
      if (std::memcmp(&want[i], &have[i], 4) != 0) ++wrong, first = i;
    }
    if (wrong != 0)
      report = "position " + std::to_string(p) + ": " + std::to_string(wrong) + " logits differ, first id " +
               std::to_string(first) + ": want " + std::to_string(want[first]) + ", got " +
               std::to_string(have[first]) + "; ";
  }
  size_t rows = 0, first = 0;
  for (size_t p = s.ids.size(); p-- > 0;) {
    if (row_hash(&got[p * r.vocab], r.vocab) != s.row_hash[p]) ++rows, first = p;
  }
  if (rows != 0)
    report += std::to_string(rows) + " of " + std::to_string(s.ids.size()) +
              " rows differ, first at position " + std::to_string(first);
  return report;
}

std::vector<std::string> reference_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (entry.path().extension() == ".json") names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

std::string test_name(std::string s) {
  for (char& c : s) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return s;
}

class ReferenceBits : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(ReferenceBits, logits_equal_the_outside_implementation) {
  const auto& [name, isa] = GetParam();
  if (choose_kernels(isa) == nullptr || isa != choose_kernels(isa)->name)
    GTEST_SKIP() << "NOT RUN: this CPU lacks the instruction set " << isa;
  const Reference r = read_reference(name);
  const auto model = ModelRunner::load(oracle_path(r.model));
  for (const int32_t chunk : {0, 1}) {
    ModelRunner runner(model, {.isa = isa, .prefill_chunk = chunk});
    ASSERT_EQ(size_t(runner.vocab()), r.vocab);
    for (const ReferenceSequence& s : r.sequences)
      EXPECT_EQ(difference(r, s, runner.logits(s.ids)), "")
          << name << ", " << isa << ", chunk " << chunk << ", " << s.ids.size() << " tokens";
  }
}

std::vector<std::string> set_names() {
  std::vector<std::string> names;
  for (const KernelTable* t : kernel_tables())
    names.emplace_back(t->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceBits,
                         testing::Combine(testing::ValuesIn(reference_names()),
                                          testing::ValuesIn(set_names())),
                         [](const auto& info) {
                           return test_name(std::get<0>(info.param) + "_" + std::get<1>(info.param));
                         });

TEST(ReferenceBitsData, covers_every_family_and_type) {
  const auto names = reference_names();
  EXPECT_EQ(names.size(), 27u);
}

TEST(ReferenceBitsData, stored_rows_match_their_hashes) {
  for (const std::string& name : reference_names()) {
    const Reference r = read_reference(name);
    for (const ReferenceSequence& s : r.sequences) {
      ASSERT_EQ(s.row_hash.size(), s.ids.size());
      for (size_t f = 0; f < s.full_rows.size(); ++f)
        EXPECT_EQ(row_hash(&s.rows[f * r.vocab], r.vocab), s.row_hash[s.full_rows[f]]) << name;
    }
  }
}

}  // namespace
}  // namespace invar
