#pragma once
// Square matrices of 16-byte rows, transposed in registers: what packing moves codes, scales and floats with.
// Vector types of the compiler, for the baseline instruction set.

#include <algorithm>
#include <utility>

namespace invar {

template <class T>
struct VectorOf {
  static constexpr int size = 16 / sizeof(T);
  typedef T type __attribute__((vector_size(16)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class V, int... i>
void interleave(const V& a, const V& b, V* out, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  out[0] = __builtin_shufflevector(a, b, (i / 2 + i % 2 * n)...);
  out[1] = __builtin_shufflevector(a, b, (i / 2 + i % 2 * n + n / 2)...);
}

// m is [n][n], n = VectorOf<T>::size. Interleaving its upper and lower rows rotates the bits of the index
// (row, column) by one; half a turn exchanges row and column.
template <class T>
void transpose(Vector<T>* m) {
  constexpr int n = VectorOf<T>::size;
  for (int turn = 1; turn < n; turn *= 2) {
    Vector<T> next[n];
    for (int i = 0; i < n / 2; ++i)
      interleave(m[i], m[i + n / 2], next + 2 * i, std::make_integer_sequence<int, n>());
    std::copy_n(next, n, m);
  }
}

}  // namespace invar
