#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace invar {
namespace {

TEST(Buffer, IsZeroedAndAlignedAtEverySize) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{4097}, (size_t{2} << 20) - 1,
                             size_t{2} << 20, (size_t{5} << 20) + 3}) {
    Buffer buffer(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    EXPECT_TRUE(
        std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(buffer.data(), bytes, std::byte{0xA5});  // every byte is writable
  }
}

TEST(Buffer, MoveTakesTheMemoryAlong) {
  Buffer a(100);
  std::byte* data = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0u);
  Buffer c(size_t{3} << 20);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100u);
}

TEST(Buffer, EmptyHasNoMemory) {
  Buffer buffer(0);
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(Buffer, AllocateReportsWhatCannotBeGot) {
  for (const size_t bytes : {size_t{1} << 60, SIZE_MAX, SIZE_MAX - 4096}) {
    const Result<Buffer> buffer = Buffer::allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), Code::kResourceExhausted);
  }
}

}  // namespace
}  // namespace invar
