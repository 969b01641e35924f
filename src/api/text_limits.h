#pragma once
// How much text a request may bring. One rule for all that reaches the chat template or the tokenizer, on any
// thread: at most Service::max_text_bytes at a time. Errors are 400 with the code context_length_exceeded.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "api/fields.h"
#include "api/service.h"

namespace invar::api {

// Service::max_text_bytes for a context: 1 MiB, or 8 bytes for each token of a long context (text has about
// four), never more than the tokenizer takes. The tokenizer needs some 200 bytes of memory for each.
size_t max_text_bytes(int32_t context);

// What a template can show of a value: the bytes of its strings and keys, and 8 for each other value.
size_t text_bytes(const json::value& value);

// Null: the text may be read.
std::optional<Error> too_much_text(const Service& service, size_t bytes, const char* field);

}  // namespace invar::api
