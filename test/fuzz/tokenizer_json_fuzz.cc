// libFuzzer target: any tokenizer.json and tokenizer_config.json, split at the first zero byte, end in an
// error or in a tokenizer that encodes a text, gives the bytes of every id and decodes what it encoded.
// layers: text

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace invar::text;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  const auto tokenizer =
      Tokenizer::from_json(all.substr(0, cut), cut == all.npos ? std::string_view() : all.substr(cut + 1));
  if (!tokenizer.ok()) {
    CHECK(tokenizer.status().code() != invar::Code::kInternal);
    return 0;
  }
  size_t sum = 0;
  for (int32_t id = -1; id <= (*tokenizer)->vocab_size(); ++id)
    sum += (*tokenizer)->token_bytes(id).size() + (*tokenizer)->is_control(id);
  for (const Special special : {Special::kParse, Special::kPlain}) {
    const auto ids = (*tokenizer)->encode("a b\xC3\xA9 <s> 12 \xF0\x9F\x98\x80\n", special);
    CHECK(ids.ok() || ids.status().code() != invar::Code::kInternal);
    if (!ids.ok()) continue;
    const auto text = (*tokenizer)->reference_decode(*ids, special == Special::kPlain);
    CHECK(text.ok() || text.status().code() != invar::Code::kInternal);
  }
  volatile size_t keep = sum;
  (void)keep;
  return 0;
}
