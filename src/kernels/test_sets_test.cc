#include "kernels/test_sets.h"

#include <string>

#include "tensor/float16.h"

#if defined(INVAR_HAVE_EMULATED)
namespace invar::avx512_emulated {
void fill_linear(KernelTable&);
void fill_attention(KernelTable&);
void fill_ops(KernelTable&);
}  // namespace invar::avx512_emulated
#endif

namespace invar {

const KernelTable& specification() {
  return *kernel_tables().front();
}

// AVX-512 over SIMDe where it is built, else nullptr.
static const KernelTable* emulated_set() {
#if defined(INVAR_HAVE_EMULATED)
  static const KernelTable table = [] {
    KernelTable t{};
    t.name = "avx512-emulated";
    avx512_emulated::fill_linear(t);
    avx512_emulated::fill_attention(t);
    avx512_emulated::fill_ops(t);
    return t;
  }();
  return &table;
#else
  return nullptr;
#endif
}

const std::vector<const KernelTable*>& all_kernel_sets() {
  static const std::vector<const KernelTable*> sets = [] {
    std::vector<const KernelTable*> v(kernel_tables().begin(), kernel_tables().end());
    if (emulated_set()) v.push_back(emulated_set());
    return v;
  }();
  return sets;
}

bool runnable(const KernelTable& table) {
  if (&table == emulated_set()) return choose_kernels("avx2") != nullptr;
  return cpu_supports(table);
}

std::string set_test_name(const testing::TestParamInfo<const KernelTable*>& info) {
  std::string name = info.param->name;
  for (char& c : name)
    c = c == '-' ? '_' : c;
  return name;
}

int64_t first_difference(const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (a[i] != a[i] && b[i] != b[i]) continue;
    if (float_bits(a[i]) != float_bits(b[i])) return i;
  }
  return -1;
}

namespace {

TEST(KernelTable, lists_the_specification_first_and_finds_sets_by_name) {
  ASSERT_GE(kernel_tables().size(), 4u);
  EXPECT_STREQ(kernel_tables().front()->name, "scalar-portable");
  EXPECT_TRUE(cpu_supports(specification()));
  for (const KernelTable* table : kernel_tables()) {
    const KernelTable* found = choose_kernels(table->name);
    if (cpu_supports(*table)) {
      EXPECT_EQ(found, table);
    } else if (std::string_view(table->name) == "scalar") {
      EXPECT_EQ(found, &specification());
    } else {
      EXPECT_EQ(found, nullptr);
    }
  }
  EXPECT_EQ(choose_kernels("avx1024"), nullptr);
}

TEST(KernelTable, chooses_the_last_supported_set_by_default) {
  const KernelTable* best = nullptr;
  for (const KernelTable* table : kernel_tables()) {
    if (cpu_supports(*table)) best = table;
  }
  EXPECT_EQ(choose_kernels(""), best);
  EXPECT_EQ(choose_kernels({}), best);
}

TEST(KernelTable, every_set_that_can_run_has_every_kernel) {
  for (const KernelTable* t : all_kernel_sets()) {
    if (!runnable(*t)) continue;  // such a table is only a name
    EXPECT_TRUE(t->quantize_row && t->linear && t->unpack_row) << t->name;
    EXPECT_TRUE(t->rms_norm && t->layer_norm && t->add && t->gated_silu && t->gated_gelu && t->scale &&
                t->softcap && t->rows.softmax && t->rows.argmax && t->rows.exp_sum && t->rows.all_finite)
        << t->name;
    EXPECT_TRUE(t->rope_table && t->rope && t->rope_adjacent && t->attend_scratch && t->attend_combine)
        << t->name;
    for (size_t f = 0; f < size_t(Unary::kCount); f++)
      EXPECT_TRUE(t->unary[f]) << t->name << unary_name(Unary(f));
    for (const KvCodec& codec : kv_codecs()) {
      EXPECT_TRUE(t->kv_write[codec.index] && t->attend[codec.index] && t->attend_split[codec.index])
          << t->name << codec.name;
    }
  }
}

TEST(KvCodecs, table_index_is_the_position_in_the_table) {
  int i = 0;
  for (const KvCodec& codec : kv_codecs()) {
    EXPECT_EQ(codec.index, i++);
    EXPECT_EQ(find_kv_codec(codec.name), &codec);
  }
  EXPECT_EQ(find_kv_codec("q3"), nullptr);
}

#if !defined(INVAR_HAVE_EMULATED)
TEST(KernelTable, emulated_avx512_is_built) {
  GTEST_SKIP() << "NOT RUN: avx512-emulated (simde/x86/avx512.h not found at configure time)";
}
#endif

}  // namespace
}  // namespace invar
