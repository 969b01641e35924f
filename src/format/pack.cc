#include "format/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tensor/float16.h"

namespace invar {
namespace {

// Codes of one channel and 32 columns into the code planes of a group; lane is the channel's first byte lane.
template <int bits>
void put_codes(const uint8_t* code, std::byte* group, int lane) {
  uint32_t quad[8];
  std::memcpy(quad, code, 32);
  const auto put = [&](int vector, uint32_t value) { std::memcpy(group + 64 * vector + lane, &value, 4); };
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
      uint32_t plane = 0;
      for (int j = 0; j < 4; ++j)
        plane |= ((quad[4 * v + j] >> kShift) & 0x03030303u) << (2 * j);
      put(vectors + v, plane);
    }
    vectors += 2;
  }
  if constexpr (bits == 3 || bits == 5) {
    constexpr int kShift = bits == 5 ? 4 : 2;
    uint32_t plane = 0;
    for (int j = 0; j < 8; ++j)
      plane |= ((quad[j] >> kShift) & 0x01010101u) << j;
    put(vectors, plane);
  }
}

bool finite_f16(uint16_t h) {
  return (h & 0x7C00) != 0x7C00;
}
// The contract's flush of |scale| < 2^-40: an f16 times an integer is 0 or at least 2^-24, so only the sign
// of zero is left to do. The upper limit 2^64 cannot be reached either.
uint16_t plus_zero(uint16_t h) {
  return (h & 0x7FFF) == 0 ? 0 : h;
}
void put_f16(std::byte* at, uint16_t h) {
  std::memcpy(at, &h, 2);
}

// The scales of one block: `group` is the block's first scale group inside the record.
bool put_scales(const PackedForm& form, const UnpackedBlock& block, int groups, std::byte* area, int group,
                int channel) {
  if (!finite_f16(block.d[0])) return false;
  if (form.bias != BiasKind::kNone && !finite_f16(block.m[0])) return false;
  const uint16_t d = plus_zero(block.d[0]), m = plus_zero(block.m[0]);
  switch (form.scale) {
    case ScaleKind::kF16:  // one group per block
      if (form.bias == BiasKind::kF16) {
        put_f16(area + 64 * group + 2 * channel, d);
        put_f16(area + 64 * group + 32 + 2 * channel, m);
      } else {
        put_f16(area + 32 * group + 2 * channel, d);
      }
      break;
    case ScaleKind::kF16xU8:
      put_f16(area + 2 * channel, d);
      put_f16(area + 32 + 2 * channel, m);
      for (int g = 0; g < groups; ++g) {
        area[64 + 32 * g + channel] = static_cast<std::byte>(block.sub[g]);
        area[64 + 32 * g + 16 + channel] = static_cast<std::byte>(block.sub_m[g]);
      }
      break;
    case ScaleKind::kF16xS8:
      put_f16(area + 2 * channel, d);
      for (int g = 0; g < groups; ++g)
        area[64 + 16 * g + channel] = static_cast<std::byte>(static_cast<int8_t>(block.sub[g]));
      break;
    case ScaleKind::kNone:
      break;
  }
  return true;
}

template <int bits>
Status pack_blocks(const WeightType& type, const std::byte* data, int64_t rows, int64_t cols, RowOrder order,
                   int64_t tile, std::byte* out) {
  const PackedForm& form = *type.form;
  const int64_t row_bytes = cols / type.block * type.block_bytes;
  const int groups = type.block / form.group;  // per block
  const size_t code_bytes = code_bytes_per_32(form);
  std::memset(out, 0, tile_bytes(form, cols));
  const int channels = static_cast<int>(std::min<int64_t>(kTileRows, rows - tile * kTileRows));
  UnpackedBlock block;
  for (int64_t k0 = 0; k0 < cols; k0 += kRecordCols) {
    const int64_t n = std::min<int64_t>(kRecordCols, cols - k0);
    std::byte* codes = out + scale_area_bytes(form, n);
    for (int c = 0; c < channels; ++c) {
      const int64_t row = order.stored(tile * kTileRows + c);
      const std::byte* source = data + row * row_bytes + k0 / type.block * type.block_bytes;
      for (int64_t k = 0; k < n; k += type.block, source += type.block_bytes) {
        type.unpack(source, &block);
        if (!put_scales(form, block, groups, out, static_cast<int>(k / form.group), c))
          return corrupt(
              fmt::format("row {}, column {}: a scale is not finite; the file is damaged", row, k0 + k));
        for (int j = 0; j < type.block; j += 32)
          put_codes<bits>(block.code + j, codes + static_cast<size_t>(k + j) / 32 * code_bytes, 4 * c);
      }
    }
    out += record_bytes(form, n);
  }
  return {};
}

// Elements of 16 rows side by side; 64 columns at a time keep the tile's lines in the first-level cache.
template <class T>
void pack_floats(const std::byte* data, int64_t rows, int64_t cols, RowOrder order, int64_t tile,
                 std::byte* out) {
  const int channels = static_cast<int>(std::min<int64_t>(kTileRows, rows - tile * kTileRows));
  const auto padded = static_cast<int64_t>(round_up(static_cast<size_t>(cols), 4));
  if (channels < kTileRows) std::memset(out, 0, static_cast<size_t>(padded) * kTileRows * sizeof(T));
  std::memset(out + cols * kTileRows * static_cast<int64_t>(sizeof(T)), 0,
              static_cast<size_t>(padded - cols) * kTileRows * sizeof(T));
  T* to = reinterpret_cast<T*>(out);
  for (int64_t k0 = 0; k0 < cols; k0 += 64) {
    const int64_t n = std::min<int64_t>(64, cols - k0);
    for (int c = 0; c < channels; ++c) {
      T from[64];
      const int64_t row = order.stored(tile * kTileRows + c);
      std::memcpy(from, data + (row * cols + k0) * static_cast<int64_t>(sizeof(T)),
                  static_cast<size_t>(n) * sizeof(T));
      for (int64_t k = 0; k < n; ++k)
        to[(k0 + k) * kTileRows + c] = from[k];
    }
  }
}

}  // namespace

Status pack_tile(const WeightType& type, std::span<const std::byte> data, int64_t rows, int64_t cols,
                 RowOrder order, int64_t tile, std::byte* out) {
  CHECK(type.form != nullptr && cols % type.block == 0 && tile >= 0 && tile < tile_count(rows));
  CHECK(data.size() == static_cast<size_t>(rows * (cols / type.block) * type.block_bytes));
  switch (type.form->bits) {
    case 2:
      return pack_blocks<2>(type, data.data(), rows, cols, order, tile, out);
    case 3:
      return pack_blocks<3>(type, data.data(), rows, cols, order, tile, out);
    case 4:
      return pack_blocks<4>(type, data.data(), rows, cols, order, tile, out);
    case 5:
      return pack_blocks<5>(type, data.data(), rows, cols, order, tile, out);
    case 6:
      return pack_blocks<6>(type, data.data(), rows, cols, order, tile, out);
    case 8:
      return pack_blocks<8>(type, data.data(), rows, cols, order, tile, out);
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

Status pack_vector(const WeightType& type, std::span<const std::byte> data, int64_t size, RowOrder order,
                   float* out) {
  if (type.form == nullptr || !is_float(*type.form))
    return unsupported(fmt::format("is a vector of type {}; F32, F16 and BF16 are supported", type.name));
  CHECK(data.size() == static_cast<size_t>(size) * static_cast<size_t>(type.block_bytes));
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
    }
  }
  return {};
}

}  // namespace invar
