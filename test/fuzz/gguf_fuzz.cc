// libFuzzer target: any bytes given to the GGUF parser end in an error or in a file that is safe to read.
// layers: format

#include <cstdint>

#include "format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = invar::GgufFile::parse(bytes, "fuzz.gguf");
  if (!file.ok()) return 0;
  size_t sum = 0;
  for (const invar::GgufEntry& e : file->entries()) {
    (void)file->get_int(e.key).ok();
    (void)file->get_f32(e.key).ok();
    (void)file->get_bool(e.key).ok();
    (void)file->get_string(e.key).ok();
    (void)file->get_floats(e.key).ok();
    (void)file->get_ints(e.key).ok();
    const auto strings = file->get_strings(e.key);
    if (!strings.ok() || !strings->has_value()) continue;
    for (const std::string_view s : **strings)
      for (const char c : s)
        sum += static_cast<unsigned char>(c);
  }
  for (const invar::GgufTensor& t : file->tensors())
    for (const std::byte b : t.data)
      sum += static_cast<size_t>(b);
  volatile size_t keep = sum;
  (void)keep;
  return 0;
}
