// libFuzzer target: any bytes given to the safetensors parser end in an error or in tensors that are safe to
// read; the same bytes as config.json end in an error or in a document. layers: format

#include <cstdint>

#include "format/hf_config.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = invar::SafetensorsFile::parse(bytes, "fuzz.safetensors");
  size_t sum = 0;
  if (file.ok())
    for (const invar::SafetensorsTensor& t : file->tensors())
      for (const std::byte b : t.data)
        sum += static_cast<size_t>(b);
  volatile size_t keep = sum;
  (void)keep;
  const auto config = invar::HfConfig::parse({reinterpret_cast<const char*>(data), size}, "config.json");
  if (config.ok())
    for (const char* key : {"hidden_size", "rope_scaling.factor", "layer_types", "a", "a.b"}) {
      (void)config->get_int(key).ok();
      (void)config->get_double(key).ok();
      (void)config->get_ints(key).ok();
      (void)config->get_strings(key).ok();
    }
  return 0;
}
