#pragma once
// What every call into the bridge needs: views in, buffers out, codes to Status. Only for src/text/*.cc.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/quote.h"
#include "base/status.h"
#include "bridge/include/bridge.h"

namespace invar::text {

inline iv_text to_iv(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

// Frees what the bridge allocated.
class BridgeBuffer {
 public:
  BridgeBuffer() = default;
  BridgeBuffer(const BridgeBuffer&) = delete;
  BridgeBuffer& operator=(const BridgeBuffer&) = delete;
  ~BridgeBuffer() { iv_buffer_free(&buffer_); }

  iv_buffer* out() { return &buffer_; }
  std::string_view bytes() const {
    return buffer_.len == 0 ? std::string_view()
                            : std::string_view(reinterpret_cast<const char*>(buffer_.data), buffer_.len);
  }

 private:
  iv_buffer buffer_{nullptr, 0, 0};
};

inline constexpr size_t kMaxBridgeMessage = 1000;

// `code`: what a bridge function returned on this thread.
inline Status bridge_status(int32_t code) {
  if (code == 0) return {};
  std::string message(iv_last_error(nullptr, 0), '\0');
  iv_last_error(reinterpret_cast<uint8_t*>(message.data()), message.size());
  message = printable(message, kMaxBridgeMessage);  // it may quote a model's text
  switch (code) {
    case IV_LIMIT:
      return resource_exhausted(std::move(message));
    case IV_REFUSED:
      return invalid_argument("the chat template refuses this conversation: " + message);
    case IV_UNSUPPORTED:
      return unsupported(std::move(message));
    case IV_INPUT:
      return invalid_argument(std::move(message));
    default:
      return internal_error("bridge: " + message);
  }
}

}  // namespace invar::text
