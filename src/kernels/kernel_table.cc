#include "kernels/kernel_table.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "base/check.h"

#define ISA_SET(id, name, features)  \
  namespace invar::id {              \
  void fill_linear(KernelTable&);    \
  void fill_attention(KernelTable&); \
  void fill_ops(KernelTable&);       \
  }
#include "kernels/isa_list.inc"
#undef ISA_SET

namespace invar {
namespace {

// One bit of CPUID, and the register state that the operating system must save for it (bits of XCR0).
struct Feature {
  std::string_view name;
  unsigned leaf;
  enum { kEbx, kEcx, kEdx } reg;
  int bit;
  unsigned xcr0;
};
constexpr unsigned kYmm = 0x06, kZmm = 0xE6;
constexpr Feature kFeatures[] = {
    {"fma", 1, Feature::kEcx, 12, kYmm},      {"f16c", 1, Feature::kEcx, 29, kYmm},
    {"avx2", 7, Feature::kEbx, 5, kYmm},      {"avx512f", 7, Feature::kEbx, 16, kZmm},
    {"avx512dq", 7, Feature::kEbx, 17, kZmm}, {"avx512bw", 7, Feature::kEbx, 30, kZmm},
    {"avx512vl", 7, Feature::kEbx, 31, kZmm}, {"avx512vnni", 7, Feature::kEcx, 11, kZmm},
};

unsigned enabled_register_state() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool cpu_has(std::string_view feature) {
  for (const Feature& f : kFeatures) {
    if (f.name != feature) continue;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(f.leaf, 0, &a, &b, &c, &d)) return false;
    const unsigned reg = f.reg == Feature::kEbx ? b : f.reg == Feature::kEcx ? c : d;
    return (reg >> f.bit & 1) && (enabled_register_state() & f.xcr0) == f.xcr0;
  }
  CHECK(!"isa_list.cmake names a feature that kernel_table.cc does not know");
  return false;
}

bool cpu_has_all(std::string_view features) {
  while (!features.empty()) {
    const size_t end = std::min(features.find(' '), features.size());
    if (end > 0 && !cpu_has(features.substr(0, end))) return false;
    features.remove_prefix(std::min(end + 1, features.size()));
  }
  return true;
}

struct Set {
  KernelTable table;
  const char* features;
};

template <class... Fill>
Set make_set(const char* name, const char* features, Fill... fill) {
  Set set{};
  set.table.name = name;
  set.features = features;
  // The filling functions are compiled for their set, so they may not even run elsewhere; such a table keeps
  // its name and no function.
  if (cpu_has_all(features)) (fill(set.table), ...);
  return set;
}

const auto& sets() {
  // Built on first use, so that other translation units may ask while they are being initialized.
  static const Set kSets[] = {
#define ISA_SET(id, name, features) \
  make_set(name, features, id::fill_linear, id::fill_attention, id::fill_ops),
#include "kernels/isa_list.inc"
#undef ISA_SET
  };
  return kSets;
}
constexpr size_t kSetCount = std::extent_v<std::remove_cvref_t<decltype(sets())>>;

}  // namespace

std::span<const KernelTable* const> kernel_tables() {
  static const auto tables = [] {
    std::array<const KernelTable*, kSetCount> t{};
    for (size_t i = 0; i < kSetCount; i++)
      t[i] = &sets()[i].table;
    return t;
  }();
  return tables;
}

bool cpu_supports(const KernelTable& table) {
  for (const Set& set : sets()) {
    if (&set.table == &table) return cpu_has_all(set.features);
  }
  return false;
}

const KernelTable* choose_kernels(std::string_view name) {
  const KernelTable* best = nullptr;
  for (const KernelTable* table : kernel_tables()) {
    const bool wanted = name.empty() || name == table->name ||
                        (name == "scalar" && table->name == std::string_view("scalar-portable"));
    if (wanted && cpu_supports(*table)) best = table;
  }
  return best;
}

const char* unary_name(Unary f) {
  constexpr const char* kNames[] = {"exp",      "sigmoid",   "silu", "tanh",
                                    "softplus", "gelu_tanh", "erf",  "gelu_erf"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == size_t(Unary::kCount));
  CHECK(f < Unary::kCount);
  return kNames[size_t(f)];
}

}  // namespace invar
