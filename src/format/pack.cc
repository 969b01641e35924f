#include "format/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/source_planes.h"
#include "format/transpose.h"
#include "tensor/float16.h"

namespace invar {
namespace {

// A quad (four consecutive codes) of each of four channels: 16 bytes of a code plane.
using Quads = Vector<uint32_t>;

// Codes of four channels and 32 columns from k on into the code planes of a group; lane is the byte lane of
// the first channel.
template <int bits>
void put_codes(const UnpackedBlock* four, int k, std::byte* group, int lane) {
  Quads quad[8];
  for (int c = 0; c < 4; ++c) {
    std::memcpy(&quad[c], four[c].code + k, 16);
    std::memcpy(&quad[c + 4], four[c].code + k + 16, 16);
  }
  transpose<uint32_t>(quad);
  transpose<uint32_t>(quad + 4);
  const auto put = [&](int vector, const Quads& value) {
    std::memcpy(group + 64 * vector + lane, &value, sizeof value);
  };
  int vectors = 0;
  if constexpr (bits == 8) {
    for (int v = 0; v < 8; ++v)
      put(v, quad[v]);
  }
  if constexpr (bits >= 4 && bits < 8) {
    for (int v = 0; v < 4; ++v)
      put(v, (quad[v] & 0x0F0F0F0Fu) | (quad[v + 4] & 0x0F0F0F0Fu) << 4);
    vectors = 4;
  }
  if constexpr (bits == 2 || bits == 3 || bits == 6) {
    constexpr int kShift = bits == 6 ? 4 : 0;
    for (int v = 0; v < 2; ++v) {
      Quads plane = {};
      for (int j = 0; j < 4; ++j)
        plane |= ((quad[4 * v + j] >> kShift) & 0x03030303u) << (2 * j);
      put(vectors + v, plane);
    }
    vectors += 2;
  }
  if constexpr (bits == 3 || bits == 5) {
    constexpr int kShift = bits == 5 ? 4 : 2;
    Quads plane = {};
    for (int j = 0; j < 8; ++j)
      plane |= ((quad[j] >> kShift) & 0x01010101u) << j;
    put(vectors, plane);
  }
}

// The first of n groups with a scale or bias that is not finite; n: there is none.
int first_not_finite(const PackedForm& form, const UnpackedBlock& block, int n) {
  if (form.scale == ScaleKind::kF32xS8) return std::isfinite(block.head) ? n : 0;
  const int exponent = form.scale == ScaleKind::kBF16 ? 0x7F80 : 0x7C00;
  int g = 0;
  while (g < n && (block.d[g] & exponent) != exponent && (block.m[g] & exponent) != exponent)
    ++g;
  return g;
}

// Group g of the 16 channels to out + g * stride, for n <= 16 groups.
template <class T, class From>
void put_table(const UnpackedBlock* unpacked, const From (UnpackedBlock::*values)[16], int n, std::byte* out,
               int stride) {
  constexpr int size = VectorOf<T>::size;
  for (int c = 0; c < kTileRows; c += size) {
    for (int g = 0; g < n; g += size) {
      Vector<T> m[size];
      for (int i = 0; i < size; ++i) {
        T row[size];
        for (int j = 0; j < size; ++j)
          row[j] = static_cast<T>((unpacked[c + i].*values)[g + j]);
        std::memcpy(&m[i], row, 16);
      }
      transpose<T>(m);
      for (int j = 0; j < size && g + j < n; ++j)
        std::memcpy(out + (g + j) * stride + c * static_cast<int>(sizeof(T)), &m[j], 16);
    }
  }
}

// The scale area of a record from the 16 channels: n of d and m, `groups` of the second level.
void put_scales(const PackedForm& form, const UnpackedBlock* unpacked, int n, int groups, std::byte* area) {
  const bool bias = form.bias != BiasKind::kNone;
  if (form.scale == ScaleKind::kF32xS8) {
    for (int c = 0; c < kTileRows; ++c)
      std::memcpy(area + 4 * c, &unpacked[c].head, 4);
    put_table<uint8_t>(unpacked, &UnpackedBlock::sub, groups, area + 64, 16);
    return;
  }
  put_table<uint16_t>(unpacked, &UnpackedBlock::d, n, area, bias ? 64 : 32);
  if (bias) put_table<uint16_t>(unpacked, &UnpackedBlock::m, n, area + 32, 64);
  if (has_half_scales(form)) return;
  put_table<uint8_t>(unpacked, &UnpackedBlock::sub, groups, area + 64, 32);
  put_table<uint8_t>(unpacked, &UnpackedBlock::sub_m, groups, area + 64 + 16, 32);
}

// The stored rows of a tile's channels.
struct TileSource {
  TileSource(const std::byte* data, int64_t rows, int64_t row_bytes, RowOrder order, int64_t tile)
      : channels(static_cast<int>(std::min<int64_t>(kTileRows, rows - tile * kTileRows))) {
    for (int c = 0; c < channels; ++c)
      row[c] = data + order.stored(tile * kTileRows + c) * row_bytes;
  }
  int channels;  // those that exist
  const std::byte* row[kTileRows] = {};
};

// What finished sums of the tile's channels are multiplied with.
Status put_factors(const SourcePlanes& planes, const int64_t* stored, int channels, std::byte* out) {
  float factors[kTileRows] = {};
  for (int c = 0; c < channels; ++c) {
    factors[c] = planes.factor(stored[c]);
    if (!(std::abs(factors[c]) < 0x1p64f))
      return corrupt(
          fmt::format("row {}: its factor is not finite or too large; the file is damaged", stored[c]));
  }
  std::memcpy(out, factors, sizeof factors);
  return {};
}

template <int bits>
Status pack_blocks(const WeightType& type, const std::byte* data, int64_t rows, int64_t cols, RowOrder order,
                   int64_t tile, std::byte* out, const SourcePlanes* planes) {
  const PackedForm& form = *type.form;
  const int64_t row_bytes = cols / type.block * type.block_bytes;
  TileSource source(data, rows, row_bytes, order, tile);
  int64_t stored[kTileRows] = {};
  for (int c = 0; planes != nullptr && c < source.channels; ++c)
    stored[c] = (source.row[c] - planes->data.data()) / row_bytes;
  UnpackedBlock unpacked[kTileRows] = {};  // missing channels stay zero
  for (int64_t k0 = 0; k0 < cols; k0 += kRecordCols) {
    const int n = static_cast<int>(std::min<int64_t>(kRecordCols, cols - k0));
    const int blocks = n / type.block, groups = n / form.group;
    const int first_level = has_half_scales(form) ? groups : 1;
    const size_t scale_bytes = scale_area_bytes(form, n);
    for (int four = 0; four < kTileRows; four += 4) {
      for (int c = four; c < std::min(four + 4, source.channels); ++c) {
        if (planes != nullptr) {
          type.unpack_planes(*planes, stored[c], k0, n, &unpacked[c]);
          continue;
        }
        type.unpack(source.row[c], blocks, &unpacked[c]);
        source.row[c] += blocks * type.block_bytes;
        for (int at = 0; at < blocks * type.block_bytes; at += 64)
          __builtin_prefetch(source.row[c] + at);  // for the next record
      }
      for (int k = 0; k < n; k += 32)
        put_codes<bits>(unpacked + four, k, out + scale_bytes + k / 32 * code_bytes_per_32(form), 4 * four);
    }
    for (int c = 0; c < source.channels; ++c) {
      const int g = first_not_finite(form, unpacked[c], first_level);
      if (g < first_level)
        return corrupt(
            fmt::format("row {}, column {}: a scale is not finite or too large; the file is damaged",
                        order.stored(tile * kTileRows + c), k0 + g * form.group));
    }
    std::memset(out, 0, scale_bytes);
    put_scales(form, unpacked, first_level, groups, out);
    out += record_bytes(form, n);
  }
  return form.factors ? put_factors(*planes, stored, source.channels, out) : Status();
}

// Elements of 16 rows side by side, small squares at a time; 64 columns keep the lines of rows and tile in
// the first-level cache.
template <class T>
void pack_floats(const std::byte* data, int64_t rows, int64_t cols, RowOrder order, int64_t tile,
                 std::byte* out) {
  constexpr int size = VectorOf<T>::size;
  const TileSource source(data, rows, cols * static_cast<int64_t>(sizeof(T)), order, tile);
  const auto padded = static_cast<int64_t>(round_up(static_cast<size_t>(cols), 4));
  T* to = reinterpret_cast<T*>(out);
  for (int64_t k0 = 0; k0 < padded; k0 += 64) {
    for (int c = 0; c < kTileRows; c += size) {
      for (int64_t k = k0; k < std::min(k0 + 64, padded); k += size) {
        const bool whole = c + size <= source.channels && k + size <= cols;
        const auto bytes = static_cast<size_t>(std::min<int64_t>(size, cols - k)) * sizeof(T);
        Vector<T> m[size] = {};
        for (int i = 0; i < size; ++i) {
          const size_t at = static_cast<size_t>(k) * sizeof(T);
          if (whole) {
            std::memcpy(&m[i], source.row[c + i] + at, 16);
          } else if (c + i < source.channels) {
            std::memcpy(&m[i], source.row[c + i] + at, bytes);
          }
        }
        transpose<T>(m);
        const auto n = static_cast<int>(std::min<int64_t>(size, padded - k));
        for (int i = 0; i < n; ++i)
          std::memcpy(to + (k + i) * kTileRows + c, &m[i], 16);
      }
    }
  }
}

// Records of E4M3: a scale per channel, then one byte per element.
Status pack_e4m3(const WeightType& type, const std::byte* data, int64_t rows, int64_t cols, RowOrder order,
                 int64_t tile, std::byte* out, const SourcePlanes& planes) {
  const int64_t row_bytes = cols / type.block * type.block_bytes;
  const TileSource source(data, rows, row_bytes, order, tile);
  std::memset(out, 0, tile_bytes(*type.form, cols));
  for (int64_t k0 = 0; k0 < cols; k0 += type.form->group) {
    const int n = static_cast<int>(std::min<int64_t>(type.form->group, cols - k0));
    for (int c = 0; c < source.channels; ++c) {
      UnpackedBlock b;
      type.unpack_planes(planes, (source.row[c] - planes.data.data()) / row_bytes, k0, n, &b);
      const auto bad = [&](int k, const char* what) {
        return corrupt(fmt::format("row {}, column {}: {}; the file is damaged",
                                   order.stored(tile * kTileRows + c), k0 + k, what));
      };
      if (!(std::abs(b.head) < 0x1p64f)) return bad(0, "a scale is not finite or too large");
      const float stored = b.head * 256.0f;  // tensor/packed.h
      std::memcpy(out + 4 * c, &stored, 4);
      for (int k = 0; k < n; ++k) {
        if ((b.code[k] & 0x7F) == 0x7F) return bad(k, "the value is not finite");
        out[kChannelFloats + static_cast<size_t>(k * kTileRows + c)] = static_cast<std::byte>(b.code[k]);
      }
    }
    out += kChannelFloats + static_cast<size_t>(n * kTileRows);
  }
  return {};
}

}  // namespace

Status pack_tile(const WeightType& type, std::span<const std::byte> data, int64_t rows, int64_t cols,
                 RowOrder order, int64_t tile, std::byte* out, const SourcePlanes* planes) {
  CHECK(type.form != nullptr && cols % type.block == 0 && tile >= 0 && tile < tile_count(rows));
  const int64_t stored_rows = order.step * (rows - 1) + 1;
  CHECK(data.size() == static_cast<size_t>(stored_rows * (cols / type.block) * type.block_bytes));
  CHECK((type.unpack_planes != nullptr) == (planes != nullptr));
  if (planes != nullptr && is_float(*type.form))
    return pack_e4m3(type, data.data(), rows, cols, order, tile, out, *planes);
  switch (type.form->bits) {
    case 2:
      return pack_blocks<2>(type, data.data(), rows, cols, order, tile, out, planes);
    case 3:
      return pack_blocks<3>(type, data.data(), rows, cols, order, tile, out, planes);
    case 4:
      return pack_blocks<4>(type, data.data(), rows, cols, order, tile, out, planes);
    case 5:
      return pack_blocks<5>(type, data.data(), rows, cols, order, tile, out, planes);
    case 6:
      return pack_blocks<6>(type, data.data(), rows, cols, order, tile, out, planes);
    case 8:
      return pack_blocks<8>(type, data.data(), rows, cols, order, tile, out, planes);
    default:
      break;
  }
  if (type.block_bytes == 4) {
    pack_floats<uint32_t>(data.data(), rows, cols, order, tile, out);
  } else {
    pack_floats<uint16_t>(data.data(), rows, cols, order, tile, out);
  }
  return {};
}

Status pack_transposed_tile(const WeightType& type, std::span<const std::byte> data, int64_t stored_rows,
                            int64_t first, int64_t rows, int64_t cols, RowOrder order, int64_t tile,
                            std::byte* out) {
  CHECK(type.form != nullptr && is_float(*type.form) && tile >= 0 && tile < tile_count(rows));
  CHECK(first >= 0 && first + order.step * (rows - 1) < stored_rows);
  const auto size = static_cast<size_t>(type.block_bytes);
  CHECK(data.size() == static_cast<size_t>(stored_rows * cols) * size);
  std::memset(out, 0, tile_bytes(*type.form, cols));
  const int64_t channels = std::min<int64_t>(kTileRows, rows - tile * kTileRows);
  for (int64_t k = 0; k < cols; ++k) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t from = k * stored_rows + first + order.stored(tile * kTileRows + c);
      std::memcpy(out + static_cast<size_t>(k * kTileRows + c) * size,
                  data.data() + static_cast<size_t>(from) * size, size);
    }
  }
  return {};
}

Status pack_vector(const WeightType& type, std::span<const std::byte> data, int64_t size, RowOrder order,
                   float* out) {
  if (type.form == nullptr || !is_float(*type.form) || type.unpack_planes != nullptr)
    return unsupported(fmt::format("is a vector of type {}; F32, F16 and BF16 are supported", type.name));
  CHECK(data.size() ==
        static_cast<size_t>(order.step * (size - 1) + 1) * static_cast<size_t>(type.block_bytes));
  for (int64_t i = 0; i < size; ++i) {
    const std::byte* from = data.data() + order.stored(i) * type.block_bytes;
    uint16_t half = 0;
    if (type.block_bytes == 2) std::memcpy(&half, from, 2);
    switch (type.form->dtype) {
      case Dtype::kF32:
        std::memcpy(out + i, from, 4);
        break;
      case Dtype::kF16:
        out[i] = f16_to_f32(half);
        break;
      case Dtype::kBF16:
        out[i] = bf16_to_f32(half);
        break;
      case Dtype::kE4M3:
        CHECK(!"vectors have no scales");
    }
  }
  return {};
}

}  // namespace invar
