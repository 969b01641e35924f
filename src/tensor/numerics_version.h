#pragma once
// The version of docs/numerics.md. Any change of a rule there that can change a bit of a result raises it.
// Part of every cache key, journal and receipt.

namespace invar {

inline constexpr int kNumericsVersion = 2;

}  // namespace invar
