#include "cli/convert/block_encoders.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"

namespace invar {
namespace {

template <class T>
void put(std::byte*& out, T value) {
  std::memcpy(out, &value, sizeof value);
  out += sizeof value;
}

bool encode_f32(const float* x, int64_t n, std::byte* out) {
  std::memcpy(out, x, size_t(n) * sizeof(float));
  return true;
}

bool encode_f16(const float* x, int64_t n, std::byte* out) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t h = f32_to_f16(x[i]);
    fits = fits && (h & 0x7C00) != 0x7C00;
    put(out, h);
  }
  return fits;
}

bool encode_bf16(const float* x, int64_t n, std::byte* out) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t b = f32_to_bf16(x[i]);
    fits = fits && (b & 0x7F80) != 0x7F80;
    put(out, b);
  }
  return fits;
}

constexpr float kLeastScale = 0x1p-126f;  // whose inverse is a number; far below what f16 holds

// 32 weights: f16 d, then a signed byte each; d takes the largest magnitude to 127. The codes are made with
// the d that has not been rounded, as everyone does.
bool encode_q8_0(const float* x, int64_t n, std::byte* out) {
  for (int64_t b = 0; b < n; b += 32, x += 32) {
    float top = 0;
    for (int i = 0; i < 32; ++i)
      top = std::max(top, std::abs(x[i]));
    const float d = top / 127, inverse = d >= kLeastScale ? 1 / d : 0;
    const uint16_t h = f32_to_f16(d);
    if ((h & 0x7C00) == 0x7C00) return false;
    put(out, h);
    for (int i = 0; i < 32; ++i)
      put(out, int8_t(std::round(x[i] * inverse)));
  }
  return true;
}

// 32 weights: f16 d, then 16 bytes, weight i in the low and weight 16 + i in the high half. d takes the
// weight of largest magnitude to code 0, which is -8.
bool encode_q4_0(const float* x, int64_t n, std::byte* out) {
  for (int64_t b = 0; b < n; b += 32, x += 32) {
    float extreme = 0;
    for (int i = 0; i < 32; ++i)
      if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
    const float d = extreme / -8, inverse = std::abs(d) >= kLeastScale ? 1 / d : 0;
    const uint16_t h = f32_to_f16(d);
    if ((h & 0x7C00) == 0x7C00) return false;
    put(out, h);
    const auto code = [&](float v) { return std::clamp(int(v * inverse + 8.5f), 0, 15); };
    for (int i = 0; i < 16; ++i)
      put(out, uint8_t(code(x[i]) | code(x[i + 16]) << 4));
  }
  return true;
}

constexpr int kGroup = 32, kGroups = 8, kSuper = kGroup * kGroups;

// x is about scale * code - minimum with codes 0 to 15; scale and minimum are not negative.
struct GroupFit {
  float scale = 0, minimum = 0;
};

int code_of(float x, float scale, float minimum) {
  return scale > 0 ? int(std::clamp(std::nearbyint((x + minimum) / scale), 0.0f, 15.0f)) : 0;
}

// Least squares, weighted towards large weights: for each of some grids the codes, then the scale and minimum
// that fit those codes best; the fit with the smallest error counts.
GroupFit fit_group(const float* x) {
  float low = 0, high = x[0], squares = 0;
  for (int i = 0; i < kGroup; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    squares += x[i] * x[i];
  }
  if (high <= low) return {0, -low};
  if (!std::isfinite(squares)) return {(high - low) / 15, -low};  // f16 does not hold that either
  const float typical = std::sqrt(squares / kGroup);
  GroupFit best;
  double best_error = -1;
  for (int step = -10; step <= 10; ++step) {
    const float grid = (high - low) / (15 + 0.1f * float(step));
    double w_sum = 0, wq = 0, wqq = 0, wx = 0, wqx = 0, wxx = 0;
    for (int i = 0; i < kGroup; ++i) {
      const double w = typical + std::abs(x[i]), v = x[i], q = code_of(x[i], grid, -low);
      w_sum += w, wq += w * q, wqq += w * q * q, wx += w * v, wqx += w * q * v, wxx += w * v * v;
    }
    const double determinant = w_sum * wqq - wq * wq;
    if (determinant <= 0) continue;
    double scale = (w_sum * wqx - wq * wx) / determinant, offset = (wqq * wx - wq * wqx) / determinant;
    if (offset > 0) scale = wqq > 0 ? wqx / wqq : 0, offset = 0;
    if (scale <= 0) continue;
    const double error = wxx + scale * scale * wqq + offset * offset * w_sum - 2 * scale * wqx -
                         2 * offset * wx + 2 * scale * offset * wq;
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = {float(scale), float(-offset)};
    }
  }
  return best_error < 0 ? GroupFit{(high - low) / 15, -low} : best;
}

// 256 weights: f16 d and dmin, twelve bytes with 6-bit scales and minima of eight groups, 128 bytes of codes.
bool encode_q4_k(const float* x, int64_t n, std::byte* out) {
  for (int64_t b = 0; b < n; b += kSuper, x += kSuper) {
    GroupFit fit[kGroups];
    float top_scale = 0, top_minimum = 0;
    for (int g = 0; g < kGroups; ++g) {
      fit[g] = fit_group(x + g * kGroup);
      top_scale = std::max(top_scale, fit[g].scale);
      top_minimum = std::max(top_minimum, fit[g].minimum);
    }
    const uint16_t d16 = f32_to_f16(top_scale / 63), m16 = f32_to_f16(top_minimum / 63);
    if ((d16 & 0x7C00) == 0x7C00 || (m16 & 0x7C00) == 0x7C00) return false;
    const float d = f16_to_f32(d16), m = f16_to_f32(m16);
    uint8_t scales[kGroups], minima[kGroups], packed[12] = {};
    const auto six_bits = [](float value, float unit) {
      return unit > 0 ? uint8_t(std::clamp(std::nearbyint(value / unit), 0.0f, 63.0f)) : uint8_t{0};
    };
    for (int g = 0; g < kGroups; ++g) {
      scales[g] = six_bits(fit[g].scale, d);
      minima[g] = six_bits(fit[g].minimum, m);
    }
    // Groups 0 to 3 have their bits in bytes of their own; those of 4 to 7 are split into low halves and the
    // top bits of the first eight bytes.
    for (int g = 0; g < 4; ++g) {
      packed[g] = uint8_t(scales[g] | (scales[g + 4] >> 4) << 6);
      packed[g + 4] = uint8_t(minima[g] | (minima[g + 4] >> 4) << 6);
      packed[g + 8] = uint8_t((scales[g + 4] & 15) | (minima[g + 4] & 15) << 4);
    }
    put(out, d16);
    put(out, m16);
    for (const uint8_t byte : packed)
      put(out, byte);
    for (int g = 0; g < kGroups; g += 2) {
      for (int i = 0; i < kGroup; ++i) {
        const int low = code_of(x[g * kGroup + i], d * float(scales[g]), m * float(minima[g]));
        const int high = code_of(x[(g + 1) * kGroup + i], d * float(scales[g + 1]), m * float(minima[g + 1]));
        put(out, uint8_t(low | high << 4));
      }
    }
  }
  return true;
}

constexpr BlockEncoder kEncoders[] = {
    {"F32", 0, encode_f32},   {"F16", 1, encode_f16},   {"BF16", 32, encode_bf16},
    {"Q8_0", 7, encode_q8_0}, {"Q4_0", 2, encode_q4_0}, {"Q4_K", 14, encode_q4_k},
};

void widen_floats(Dtype dtype, const std::byte* at, int64_t n, float* out) {
  const size_t bytes = dtype == Dtype::kF32 ? 4 : 2;
  for (int64_t i = 0; i < n; ++i, at += bytes) {
    uint32_t bits = 0;
    std::memcpy(&bits, at, bytes);
    out[i] = dtype == Dtype::kF32   ? bits_float(bits)
             : dtype == Dtype::kF16 ? f16_to_f32(uint16_t(bits))
                                    : bf16_to_f32(uint16_t(bits));
  }
}

}  // namespace

std::span<const BlockEncoder> block_encoders() {
  return kEncoders;
}

const BlockEncoder* find_encoder(std::string_view type) {
  for (const BlockEncoder& e : kEncoders)
    if (type == e.type) return &e;
  return nullptr;
}

void decode_block(const PackedForm& form, const UnpackedBlock& b, int n, float* out) {
  const auto half = [&](uint16_t bits) {
    return form.scale == ScaleKind::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  for (int k = 0; k < n; ++k) {
    const int g = k / form.group;
    const float scale = has_half_scales(form)              ? half(b.d[g])
                        : form.scale == ScaleKind::kF32xS8 ? b.head * float(b.sub[g])
                                                           : half(b.d[0]) * float(b.sub[g]);
    const float bias = form.bias == BiasKind::kNone ? 0
                       : has_half_scales(form)      ? half(b.m[g])
                                                    : half(b.m[0]) * float(b.sub_m[g]);
    const int code = form.table != nullptr ? form.table->code[b.code[k] & 15] : b.code[k];
    out[k] = scale * float(code - form.zero_point) + bias;
  }
}

void decode_weights(const WeightType& type, const std::byte* tensor, int64_t first, int64_t n, float* out) {
  CHECK(type.form != nullptr && type.unpack_planes == nullptr && first % type.block == 0 &&
        n % type.block == 0);
  const std::byte* at = tensor + first / type.block * type.block_bytes;
  if (type.unpack == nullptr) return widen_floats(type.form->dtype, at, n, out);
  for (int64_t i = 0; i < n; i += type.block, at += type.block_bytes) {
    UnpackedBlock b;
    type.unpack(at, 1, &b);
    decode_block(*type.form, b, type.block, out + i);
  }
}

}  // namespace invar
