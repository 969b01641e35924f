#pragma once
// Receipts: what a client needs to have an answer replayed and compared. Free functions, any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/service.h"

namespace invar::api {

// SHA-256, as hex digits, over the generated tokens of all choices in the order of their index: for each
// choice the number of its tokens, then their ids, every number as 4 bytes, little-endian. Tokens that a stop
// string hides count; prompt tokens and the token that ended the sequence by its id do not.
std::string output_digest(std::span<const std::vector<int32_t>> choices);

// {"model_digest", "numerics", "kv", "seed", "output_digest"}; seed: the number as the client sent it, or the
// random one.
void append_receipt(std::string& out, const Service& service, const std::string& seed,
                    const std::string& digest);

}  // namespace invar::api
