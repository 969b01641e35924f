#pragma once
// Digests. SHA-256 identifies files and models to the outside; Hasher64 (a fast non-cryptographic hash)
// guards our own cache files against damage.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

using Digest = std::array<uint8_t, 32>;  // SHA-256

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
Result<Digest> sha256_file(const std::string& path);
std::string hex(std::span<const uint8_t> bytes);

// 64-bit hash of a byte string, at memory speed; the same on every machine.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace invar
