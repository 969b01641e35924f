#pragma once
// Buffer: an owner of zeroed, 64-byte aligned memory; huge pages where the kernel grants them. Move-only.
// Sizes that follow from input go through allocate(), which reports; the constructor aborts when memory is
// out.

#include <cstddef>
#include <span>

#include "base/status.h"

namespace invar {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  static Result<Buffer> allocate(size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace invar
