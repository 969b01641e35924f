#include "kv/codec.h"

#include <string_view>

#include "base/check.h"

namespace invar {
namespace {

size_t padded_plane_bytes(const KvLayout& layout, int plane) {
  CHECK(plane < layout.codec->plane_count);
  return (layout.codec->planes[plane].bytes(layout.head_dim) + 63) / 64 * 64;
}

}  // namespace

size_t KvLayout::head_bytes() const {
  size_t bytes = 0;
  for (int p = 0; p < codec->plane_count; p++)
    bytes += padded_plane_bytes(*this, p);
  return bytes;
}

size_t KvLayout::plane_offset(int layer, int kv_head, int plane) const {
  CHECK(layer >= 0 && layer < layers && kv_head >= 0 && kv_head < kv_heads);
  size_t offset = head_bytes() * (size_t(layer) * size_t(kv_heads) + size_t(kv_head));
  for (int p = 0; p < plane; p++)
    offset += padded_plane_bytes(*this, p);
  return offset;
}

const KvCodec* find_kv_codec(std::string_view name) {
  for (const KvCodec& codec : kv_codecs()) {
    if (name == codec.name) return &codec;
  }
  return nullptr;
}

}  // namespace invar
