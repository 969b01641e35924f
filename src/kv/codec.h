#pragma once
// KvCodec: what the bytes of cached keys and values mean. A stateless description; the arithmetic that reads
// and writes it is compiled per instruction set (kernels/). It does not know where a slot is. Rows of one
// table, kv/codecs.cc; index() is the position there and indexes the kernel table.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace invar {

inline constexpr int kPageTokens = 64;  // positions per page; a slot is (page, position % 64)
inline constexpr int kMaxKvPlanes = 4;
inline constexpr int kMaxKvCodecs = 8;  // size of per-codec tables in the kernel table

struct KvPlane {
  const char* name;  // "k_codes", "v_codes", ...
  // Bytes of one (layer, KV head) in a page of 64 positions.
  size_t (*bytes)(int head_dim);
};

struct KvCodec {
  const char* name;  // "f16": stable, part of cache keys and receipts
  int index;
  Dtype dtype;  // of raw codecs
  int plane_count;
  KvPlane planes[kMaxKvPlanes];
};

std::span<const KvCodec> kv_codecs();
const KvCodec* find_kv_codec(std::string_view name);  // nullptr if unknown

// Where a plane of (layer, KV head) lies inside a page of a group: planes of one head are adjacent, heads of
// one layer are adjacent, layers follow each other; every plane starts at a multiple of 64 bytes. Raw codecs:
// k_codes [head_dim][64 positions] (positions as lanes), v_codes [64 positions][head_dim].
struct KvLayout {
  const KvCodec* codec = nullptr;
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;

  size_t plane_offset(int layer, int kv_head, int plane) const;
  size_t head_bytes() const;  // all planes of one (layer, KV head)
  size_t page_bytes() const { return head_bytes() * kv_heads * layers; }
};

}  // namespace invar
