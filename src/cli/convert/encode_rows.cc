#include "cli/convert/encode_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/quote.h"
#include "cli/convert/affine_group.h"
#include "cli/convert/block_encoders.h"

namespace invar {
namespace {

constexpr int64_t kTileElements = 1 << 15;

// copy: whether row i of the result needs no numbers. encode: a row's numbers to row i. False: `too_large`
// says what was wrong.
Status for_each_row(const RowsToEncode& rows, ThreadPool& pool, const std::string& too_large,
                    FunctionRef<bool(int64_t i)> copy,
                    FunctionRef<bool(const float* numbers, int64_t i)> encode) {
  const int64_t tile_rows = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, rows.cols));
  std::atomic<bool> infinite{false}, refused{false};
  pool.run((rows.count + tile_rows - 1) / tile_rows, [&](int64_t tile, int) {
    std::vector<float> numbers(static_cast<size_t>(rows.cols));
    for (int64_t i = tile * tile_rows; i < std::min(rows.count, (tile + 1) * tile_rows); ++i) {
      if (copy(i)) continue;
      rows.read(rows.first + i, numbers.data());
      if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); }))
        infinite = true;
      else if (!encode(numbers.data(), i))
        refused = true;
    }
  });
  if (infinite) return corrupt(fmt::format("tensor {}: holds NaN or infinity", quote(rows.tensor)));
  if (refused) return unsupported(fmt::format("tensor {}: {}", quote(rows.tensor), too_large));
  return {};
}

}  // namespace

Status encode_rows(const RowsToEncode& rows, const WeightType& type, ThreadPool& pool, std::byte* out) {
  const BlockEncoder* encoder = find_encoder(type.name);
  CHECK((encoder != nullptr || rows.copy) && rows.cols % type.block == 0);
  const auto row_bytes = coded_bytes(type, rows.cols);
  const auto at = [&](int64_t i) { return out + static_cast<size_t>(i) * row_bytes; };
  return for_each_row(
      rows, pool, fmt::format("holds values that {} cannot; try --type BF16", type.name),
      [&](int64_t i) { return rows.copy && rows.copy(rows.first + i, at(i)); },
      [&](const float* numbers, int64_t i) {
        CHECK(encoder != nullptr);
        return encoder->encode(numbers, rows.cols, at(i));
      });
}

Status encode_affine4_rows(const RowsToEncode& rows, int32_t group, Dtype scales, ThreadPool& pool,
                           const AffinePlanes& out) {
  CHECK(rows.cols % group == 0 && group % 2 == 0);
  const int64_t groups = rows.cols / group;
  return for_each_row(
      rows, pool, "its range does not fit into scales of F16", [](int64_t) { return false; },
      [&](const float* numbers, int64_t i) {
        std::vector<uint8_t> codes(static_cast<size_t>(group));
        for (int64_t g = 0; g < groups; ++g) {
          AffineGroup a{};
          if (!quantize_affine4(numbers + g * group, group, scales, &a, codes.data())) return false;
          const int64_t at = i * groups + g;
          std::memcpy(out.scales + 2 * at, &a.scale, 2);
          std::memcpy(out.biases + 2 * at, &a.bias, 2);
          for (size_t k = 0; k < codes.size(); k += 2)
            out.codes[(static_cast<size_t>(at * group) + k) / 2] = std::byte(codes[k] | codes[k + 1] << 4);
        }
        return true;
      });
}

Dtype affine_scale_dtype(const WeightType& weights) {
  return weights.name == std::string_view("BF16") ? Dtype::kBF16 : Dtype::kF16;
}

}  // namespace invar
