#include "api/receipt.h"

#include "api/json_text.h"
#include "base/hash.h"

namespace invar::api {
namespace {

void append_le32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8)
    out += char(value >> shift & 0xFF);
}

}  // namespace

std::string output_digest(std::span<const std::vector<int32_t>> choices) {
  std::string bytes;
  for (const std::vector<int32_t>& ids : choices) {
    append_le32(bytes, uint32_t(ids.size()));
    for (const int32_t id : ids)
      append_le32(bytes, uint32_t(id));
  }
  return hex(sha256(bytes));
}

void append_receipt(std::string& out, const Service& service, const std::string& seed,
                    const std::string& digest) {
  out += R"({"model_digest":)";
  append_json_string(out, service.model_digest);
  out += R"(,"numerics":)";
  append_json_string(out, service.numerics);
  out += R"(,"kv":)";
  append_json_string(out, service.kv);
  out += R"(,"seed":)";
  out += seed;
  out += R"(,"output_digest":")";
  out += digest;
  out += "\"}";
}

}  // namespace invar::api
