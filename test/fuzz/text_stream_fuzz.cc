// libFuzzer target: an answer streamed token by token is the decoded text up to its first stop string, its
// entries have the same bytes, and the guard ends the sequence with the same token. The input: lines of stop
// strings, an empty line, then tokens: a byte each, 0xFE and a byte for words and control tokens.
// layers: text api

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/testing/tiny_model.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"

namespace {

using namespace invar;
using namespace invar::text;

constexpr Detokenizer::Options kDecoding{.skip_control = true, .at_text_start = false};

struct Cut {
  size_t length;  // of the text that stays
  int32_t stop;   // -1: no stop string
};

// The string whose last byte comes first; of several that end there the longest.
Cut cut_of(std::string_view text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Cut best{text.size(), -1};
    for (size_t i = 0; i < stops.size(); ++i)
      if (text.substr(0, end).ends_with(stops[i]) &&
          (best.stop < 0 || stops[i].size() > stops[size_t(best.stop)].size()))
        best = {end - stops[i].size(), int32_t(i)};
    if (best.stop >= 0) return best;
  }
  return {text.size(), -1};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Tokenizer> tokenizer = api::make_tiny_model(false)->tokenizer;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> stops;
  while (stops.size() < 8) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) break;
    stops.emplace_back(line);
  }
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < rest.size() && tokens.size() < 200; ++i) {
    const auto byte = uint8_t(rest[i]);
    const bool word = byte == 0xFE && i + 1 < rest.size();
    tokens.push_back(word ? 256 + uint8_t(rest[++i]) % (tokenizer->vocab_size() - 256) : byte);
  }
  const auto compiled = StopStrings::compile(stops);
  if (!compiled.ok()) return 0;

  const std::string text = detokenize(tokenizer, tokens, kDecoding);
  CHECK(is_utf8(text));
  const Cut cut = cut_of(text, stops);
  TextStream stream(tokenizer, {.stops = *compiled, .decoding = kDecoding, .logprobs = true});
  const auto guard = *compiled == nullptr ? nullptr : make_stop_guard(*compiled, tokenizer, kDecoding);
  TextPiece all;
  size_t pushed = 0;
  for (const int32_t token : tokens) {
    if (stream.end() != TextEnd::kNone) break;
    TextPiece piece;
    stream.push(token, -1, {}, piece);
    ++pushed;
    CHECK(is_utf8(piece.text));
    all.text += piece.text;
    for (LogprobEntry& entry : piece.entries)
      all.entries.push_back(std::move(entry));
    if (guard != nullptr)
      CHECK((guard->accept(token).action == Verdict::Action::kStop) == (stream.end() == TextEnd::kStop));
  }
  stream.finish(TextEnd::kLength, all);
  CHECK(all.text == text.substr(0, cut.length));
  CHECK(stream.matched() == cut.stop || stops[size_t(stream.matched())] == stops[size_t(cut.stop)]);
  CHECK((stream.end() == TextEnd::kStop) == (cut.stop >= 0));
  CHECK(all.entries.size() == pushed);
  std::string bytes;
  for (const LogprobEntry& entry : all.entries)
    bytes += entry.token.bytes;
  CHECK(bytes == all.text);
  return 0;
}
