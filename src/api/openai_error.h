#pragma once
// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. Free functions, any thread.

#include <string>

#include "api/protocol.h"

namespace invar::api {

// {"error":{...}}
void append_openai_error(std::string& out, const Error& error);
// The same as a frame of a stream.
void append_openai_error_frame(std::string& out, const Error& error);
Response openai_error(const Error& error);

}  // namespace invar::api
