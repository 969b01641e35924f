#include "format/file_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace invar {

std::string file_identity(const MappedFile& file, size_t header_bytes) {
  constexpr size_t kSamples = 64, kSampleBytes = 4096;
  const std::span<const std::byte> bytes = file.bytes();
  const size_t head = std::min(header_bytes, bytes.size()), rest = bytes.size() - head;
  constexpr int64_t kSecond = 1'000'000'000;
  std::string text = fmt::format("{} {} {} {:016x}", bytes.size(), file.modified_ns() / kSecond,
                                 file.modified_ns() % kSecond, hash64(bytes.first(head)));
  if (rest <= kSamples * kSampleBytes) {
    text += fmt::format(" {:016x}", hash64(bytes.subspan(head)));
  } else {
    const size_t step = (rest - kSampleBytes) / (kSamples - 1);
    for (size_t i = 0; i < kSamples; ++i) {
      text += fmt::format(" {:016x}", hash64(bytes.subspan(head + i * step, kSampleBytes)));
      file.drop(head, rest);  // a fault may map a whole large folio around the sample
    }
  }
  return hex(sha256(text));
}

}  // namespace invar
