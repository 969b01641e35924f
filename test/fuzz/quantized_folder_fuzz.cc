// libFuzzer target: any config.json over any tensors of a safetensors folder ends in an error, or in matrices
// joined from several tensors whose every tile can be packed. The input: config.json, a zero byte and
// model.safetensors. layers: format

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "format/hf_quantized.h"
#include "format/pack.h"
#include "format/safetensors.h"
#include "format/source_planes.h"

namespace {

using namespace invar;

constexpr size_t kMaxPacked = 1 << 24;  // bytes; padding makes more of a small matrix

size_t pack_all(const SourceTensor& t) {
  const SourcePlanes& planes = *t.planes;
  CHECK(t.type->form != nullptr && t.shape.back() == planes.cols);
  CHECK(planes.order.empty() == !t.type->form->gathered);
  CHECK(planes.factors.empty() == !t.type->form->factors);
  for (const int32_t column : planes.order)
    CHECK(column >= 0 && column < planes.cols);
  const int64_t tiles = tile_count(planes.rows);
  std::vector<std::byte> tile(tile_bytes(*t.type->form, planes.cols));
  size_t sum = 0;
  for (int64_t i = 0; i < tiles && tile.size() * static_cast<size_t>(i + 1) <= kMaxPacked; ++i) {
    const Status status = pack_tile(*t.type, t.data, planes.rows, planes.cols, {}, i, tile.data(), &planes);
    CHECK(status.ok() || status.code() == Code::kCorrupt);
    for (const std::byte b : tile)
      sum += static_cast<size_t>(b);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  if (cut == all.npos) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(cut + 1);
  const auto file = SafetensorsFile::parse(bytes, "fuzz.safetensors");
  if (!file.ok()) return 0;
  std::vector<SourceTensor> tensors;
  for (const SafetensorsTensor& t : file->tensors())
    tensors.push_back({t.name, t.name, t.type, t.shape, t.data});
  const auto joined = join_quantized(all.substr(0, cut), std::move(tensors));
  if (!joined.ok()) {
    CHECK(joined.status().code() != Code::kInternal);
    return 0;
  }
  size_t sum = 0;
  for (const SourceTensor& t : *joined)
    if (t.planes != nullptr) sum += pack_all(t);
  volatile size_t keep = sum;
  (void)keep;
  return 0;
}
