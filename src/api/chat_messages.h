#pragma once
// The messages of a chat request, checked and in the form that templates get: every content is a string (""
// where there was none), text parts are joined by line breaks, developer messages are system messages,
// arguments of tool calls are objects, results of tools carry the name of their tool. Any thread.

#include <cstddef>

#include "api/fields.h"

namespace invar::api {

inline constexpr size_t kMaxToolCalls = 512;  // of one message

// Faults go to the sink: unknown roles, parts that are no text, tool results without their call, calls
// without their result.
json::array read_messages(const json::array& list, const Path& path, ErrorSink& sink);

}  // namespace invar::api
