#include "base/status.h"

namespace invar {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kIo:
      return "i/o error";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status Status::with_context(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message_);
}

}  // namespace invar
