#include "tensor/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/size_text.h"

namespace invar {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096, kAlignment = 64;

constexpr size_t round_up_to(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Zeroed memory, or null. From one huge page up it is a mapping that starts on a huge page boundary, so that
// the kernel can back it with huge pages from the first byte.
std::byte* allocate_zeroed(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  if (bytes < kHugePage) {
    void* data = std::aligned_alloc(kAlignment, round_up_to(bytes, kAlignment));
    if (data != nullptr) std::memset(data, 0, bytes);
    return static_cast<std::byte*>(data);
  }
  const size_t wanted = round_up_to(bytes, kPage), mapped = wanted + kHugePage;
  void* map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(map);
  const size_t before = round_up_to(begin, kHugePage) - begin, after = mapped - before - wanted;
  if (before != 0) munmap(map, before);
  std::byte* data = static_cast<std::byte*>(map) + before;
  if (after != 0) munmap(data + wanted, after);
  madvise(data, wanted, MADV_HUGEPAGE);  // advice: a kernel without huge pages refuses, and that is fine
  return data;
}

}  // namespace

Result<Buffer> Buffer::allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  buffer.data_ = allocate_zeroed(bytes);
  if (buffer.data_ == nullptr)
    return resource_exhausted(fmt::format("cannot get {} of memory", size_text(bytes)));
  buffer.size_ = bytes;
  return buffer;
}

Buffer::Buffer(size_t bytes) {
  Result<Buffer> result = allocate(bytes);
  CHECK(result.ok());
  *this = std::move(*result);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (size_ >= kHugePage) {
    munmap(data_, round_up_to(size_, kPage));
  } else {
    std::free(data_);
  }
}

}  // namespace invar
