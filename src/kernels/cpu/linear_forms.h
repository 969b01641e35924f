#pragma once
// The packed forms of tensor/packed.h as compile-time constants and addresses, for the linear kernels of one
// instruction set. Everything here lies in that set's namespace and is inlined: packed.h's own functions
// would be shared between sets by the linker and must not be called at run time from these files.

#include <cstddef>
#include <cstdint>

#include "tensor/packed.h"

namespace invar::INVAR_ISA {

#define INVAR_MEMBER [[gnu::always_inline]] static inline

constexpr bool same_text(const char* a, const char* b) {
  while (*a && *a == *b)
    ++a, ++b;
  return *a == *b;
}
constexpr PackedForm form_of(const char* name) {
  for (const PackedForm& form : kPackedForms) {
    if (same_text(form.name, name)) return form;
  }
  return {};
}

// Geometry of one quantized form. A "scale" is one sw (and bw) of 16 channels; kScales of them per 32
// columns.
template <int kBits_, int kGroup_, int kZeroPoint_, ScaleKind kScale_, BiasKind kBias_, int kTableBits_>
struct QuantForm {
  static constexpr int kBits = kBits_, kGroup = kGroup_, kZeroPoint = kZeroPoint_;
  static constexpr bool kTable = kTableBits_ != 0;  // codes come from a table; the planes hold indices
  static constexpr int kCodeBits = kTable ? kTableBits_ : kBits;
  static constexpr ScaleKind kScale = kScale_;
  static constexpr bool kBias = kBias_ != BiasKind::kNone;
  static constexpr int kScales = 32 / kGroup;
  static constexpr int kCodeBytes = kBits * 64;  // of 32 columns
  static constexpr bool kHalfScale = kScale == ScaleKind::kF16 || kScale == ScaleKind::kBF16;
  static constexpr int kScaleBytes = kHalfScale ? (kBias ? 64 : 32) : kScale == ScaleKind::kF16xU8 ? 32 : 16;
  static constexpr int kScaleHead = kHalfScale ? 0 : 64;  // the upper level's d (and m)

  INVAR_MEMBER constexpr int scale_area(int groups32) {
    return kScaleHead + (groups32 * kScales * kScaleBytes + 63) / 64 * 64;
  }
  INVAR_MEMBER constexpr int64_t record_size(int groups32) {
    return scale_area(groups32) + int64_t(groups32) * kCodeBytes;
  }
  INVAR_MEMBER constexpr int64_t tile_size(int64_t cols) {
    const int rest = int(cols % kRecordCols / 32);
    return cols / kRecordCols * record_size(8) + (rest ? record_size(rest) : 0);
  }
};

// Where a group of 32 columns lies.
struct GroupAddress {
  const uint8_t* record;  // start of the scale area
  const uint8_t* planes;  // code planes of this group
  int index;              // of the group inside its record
};
template <class F>
INVAR_MEMBER GroupAddress group_address(const uint8_t* tile, int64_t cols, int64_t group) {
  const int64_t record = group / 8;
  const int64_t rest = cols / 32 - record * 8;
  const uint8_t* p = tile + record * F::record_size(8);
  const int index = int(group % 8);
  return {p, p + F::scale_area(rest < 8 ? int(rest) : 8) + index * F::kCodeBytes, index};
}

// kGroup: columns per scale, 0: there are none.
template <Dtype kDtype_, int kGroup_ = 0>
struct FloatForm {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kElement = kDtype == Dtype::kF32 ? 4 : kDtype == Dtype::kE4M3 ? 1 : 2;
  static constexpr int kScaleBytes = kGroup == 0 ? 0 : kTileRows * 4;
  INVAR_MEMBER constexpr int64_t tile_size(int64_t cols) {
    const int64_t scales = kGroup == 0 ? 0 : (cols + kGroup - 1) / kGroup * kScaleBytes;
    return scales + (cols + 3) / 4 * 4 * kTileRows * kElement;
  }
  // Offset of the scales that column k has, and of its elements.
  INVAR_MEMBER constexpr int64_t scales_at(int64_t k) {
    return k / (kGroup ? kGroup : 1) * (kScaleBytes + kGroup * kTileRows * kElement);
  }
  INVAR_MEMBER constexpr int64_t column_at(int64_t k) {
    if (kGroup == 0) return k * kTileRows * kElement;
    return scales_at(k) + kScaleBytes + k % (kGroup ? kGroup : 1) * kTileRows * kElement;
  }
};
// Bytes after the tile of a form with factors.
INVAR_MEMBER constexpr int64_t factor_bytes(const PackedForm& form) {
  return form.factors ? kTileRows * 4 : 0;
}

// Calls use(form) with the compile-time form of `form`.
template <class Use>
static void with_form(const PackedForm& form, const Use& use) {
  switch (form.bits) {
    case 0:
      if (form.dtype == Dtype::kF32) return use(FloatForm<Dtype::kF32>{});
      if (form.dtype == Dtype::kF16) return use(FloatForm<Dtype::kF16>{});
      if (form.dtype == Dtype::kE4M3 && form.group == 32) return use(FloatForm<Dtype::kE4M3, 32>{});
      if (form.dtype == Dtype::kE4M3) return use(FloatForm<Dtype::kE4M3, 128>{});
      return use(FloatForm<Dtype::kBF16>{});
#define INVAR_FORM(name)                                                   \
  {                                                                        \
    constexpr PackedForm f = form_of(name);                                \
    static_assert(f.bits != 0);                                            \
    return use(QuantForm < f.bits, f.group, f.zero_point, f.scale, f.bias, \
               f.table != nullptr ? f.table->bits : 0 > {});               \
  }
    case 2:
      INVAR_FORM("u2k")
    case 3:
      INVAR_FORM("u3k")
    case 4:
      if (form.table != nullptr) {
        if (form.scale == ScaleKind::kF32xS8) INVAR_FORM("iq4x")  // whatever the table
        if (form.scale == ScaleKind::kF16) INVAR_FORM("iq4")
        if (form.group == 16) INVAR_FORM("e2m1g16")
        INVAR_FORM("e2m1")
      }
      if (form.scale == ScaleKind::kF16xU8) INVAR_FORM("u4k")
      if (form.bias == BiasKind::kBF16) INVAR_FORM("u4bb")
      if (form.bias == BiasKind::kF16) INVAR_FORM("u4b")
      INVAR_FORM("u4z8")
    case 5:
      if (form.scale == ScaleKind::kF16xU8) INVAR_FORM("u5k")
      if (form.bias == BiasKind::kF16) INVAR_FORM("u5b")
      INVAR_FORM("u5z16")
    case 6:
      INVAR_FORM("u6k")
    case 8:
      if (form.bias == BiasKind::kBF16) INVAR_FORM("u8bb")
      if (form.bias == BiasKind::kF16) INVAR_FORM("u8b")
      INVAR_FORM("u8z128")
#undef INVAR_FORM
  }
}

// One quantized row of activations (layout: kernel_table.h).
struct QuantRow {
  const int8_t* codes;
  const float* scales;       // per 32
  const float* scaled_sums;  // per 32
  const int16_t* sums;       // per 16
};
INVAR_MEMBER QuantRow quant_row(const std::byte* row, int64_t cols) {
  const auto* scales = reinterpret_cast<const float*>(row + cols);
  return {reinterpret_cast<const int8_t*>(row), scales, scales + cols / 32,
          reinterpret_cast<const int16_t*>(scales + cols / 16)};
}

// Calls step(RowCount<rows>, first row) for batches of nearly equal size, at most kMost rows each.
template <int kRows>
struct RowCount {
  static constexpr int value = kRows;
};
template <int kMost, int kTry = 1, class Step>
INVAR_MEMBER void with_row_count(int rows, int first, const Step& step) {
  if constexpr (kTry == kMost) {
    step(RowCount<kMost>{}, first);
  } else {
    if (rows == kTry) return step(RowCount<kTry>{}, first);
    with_row_count<kMost, kTry + 1>(rows, first, step);
  }
}
template <int kMost, class Step>
INVAR_MEMBER void in_batches(int count, const Step& step) {
  for (int r = 0; r < count;) {
    const int left = count - r, batches = (left + kMost - 1) / kMost;
    const int now = (left + batches - 1) / batches;
    with_row_count<kMost>(now, r, step);
    r += now;
  }
}

}  // namespace invar::INVAR_ISA
