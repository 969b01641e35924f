// libFuzzer target: any bytes as config.json end in an error or in a document whose values can be read.
// layers: format

#include <cstdint>

#include "format/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = invar::HfConfig::parse({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!config.ok()) return 0;
  for (const char* key : {"hidden_size", "rope_scaling.factor", "layer_types", "architectures",
                          "rms_norm_eps", "tie_word_embeddings", "eos_token_id",
                          "rope_parameters.full_attention.rope_theta", "a", "a.b", "", ".", "a..b"}) {
    (void)config->has(key);
    (void)config->get_int(key).ok();
    (void)config->get_double(key).ok();
    (void)config->get_bool(key).ok();
    (void)config->get_string(key).ok();
    (void)config->get_ints(key).ok();
    (void)config->get_strings(key).ok();
  }
  return 0;
}
