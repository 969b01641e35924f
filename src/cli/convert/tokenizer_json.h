#pragma once
// What the makers of GGUF vocabularies share: values of tokenizer.json that may be missing, and tokens by id.

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "cli/convert/gguf_tokenizer.h"

namespace invar {

// nullptr, "" and false where there is no such value.
const boost::json::object* object_at(const boost::json::object& o, const char* key);
std::string_view text_at(const boost::json::object& o, const char* key);
bool flag_at(const boost::json::object& o, const char* key);
// As JSON, short enough for a message.
std::string shown_at(const boost::json::object& o, const char* key);
// The first step of this type in a normalizer or pre_tokenizer that may be a sequence of them.
const boost::json::object* find_step(const boost::json::object* part, std::string_view type);
// Whether every step is of one of these types.
bool has_only(const boost::json::object* part, std::initializer_list<std::string_view> types);

Status refuse_tokenizer(const std::string& what);

// `rows` ids that no token has.
GgufTokenizer unused_vocabulary(int32_t rows);
Status put_token(GgufTokenizer& t, std::string_view text, const boost::json::value* id, int32_t type);
// Calls put(text, id, is special) for each of added_tokens.
template <class Put>
Status for_each_added(const boost::json::object& file, const Put& put) {
  const boost::json::value* added = file.if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return {};
  for (const boost::json::value& entry : added->get_array()) {
    if (!entry.is_object()) return corrupt("tokenizer.json: an entry of added_tokens is no object");
    const boost::json::object& o = entry.get_object();
    RETURN_IF_ERROR(put(text_at(o, "content"), o.if_contains("id"), flag_at(o, "special")));
  }
  return {};
}

// Metaspace, or a normalizer's Prepend: texts get a blank in front.
bool prefixes_a_blank(const boost::json::object& file);

// tokenizer.json by the kind of its model.
Result<GgufTokenizer> bpe_vocabulary(const boost::json::object& file, const boost::json::object& model,
                                     int32_t rows);
Result<GgufTokenizer> unigram_vocabulary(const boost::json::object& file, const boost::json::object& model,
                                         int32_t rows);
Result<GgufTokenizer> word_piece_vocabulary(const boost::json::object& file, const boost::json::object& model,
                                            int32_t rows);

}  // namespace invar
