#pragma once
// GgufTokenizer: a folder's tokenizer and what stands beside it as the metadata that GGUF files have for it.
// It is checked by what our reader makes of both: their ids for texts that show differences. A plain value.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/convert/gguf_writer.h"
#include "format/model_source.h"

namespace invar {

struct GgufTokenizer {
  std::string model, pre;  // "": the folder has no tokenizer
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;  // empty: none
  std::vector<int32_t> types;
  std::string charsmap;  // bytes; "": none
  std::optional<bool> space_prefix, remove_extra_whitespaces;
  bool add_bos = false, add_eos = false;
  std::vector<std::pair<const char*, uint32_t>> ids;           // keys of special tokens
  std::vector<std::pair<std::string, std::string>> templates;  // by name

  bool has_id(std::string_view key) const;
  void set_id(const char* key, int32_t id);  // unless id is negative; the first one counts
  void add_to(GgufFileWriter& writer) const;
};

// rows: of the embedding. Refuses, by its name, a kind of tokenizer or a cut of texts that GGUF has no name
// for.
Result<GgufTokenizer> gguf_tokenizer(const ModelSource& source, int32_t rows);

// What GGUF calls a byte-level cut of texts: these patterns one after the other, then bytes. "": it has no
// name.
std::string gguf_pre_name(std::vector<std::string> splits, bool nfc, bool ignore_merges);

}  // namespace invar
