#include "cli/receipt_check.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "api/json_text.h"
#include "cli/sse_reader.h"

namespace invar {
namespace {

namespace json = boost::json;

std::string json_of(const json::value& value) {
  std::string out;
  api::append_json(out, value);
  return out;
}

// As receipts write it: whole numbers without a fraction.
std::optional<std::string> seed_text(const json::value& value) {
  if (value.is_int64() || value.is_uint64()) return json_of(value);
  if (!value.is_double()) return std::nullopt;
  const double x = value.get_double();
  if (!(x > -9.2e18 && x < 9.2e18) || double(int64_t(x)) != x) return std::nullopt;
  return fmt::format("{}", int64_t(x));
}

// nullptr: absent or null.
const json::value* member(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

const json::object* receipt_in(const json::value& root) {
  if (!root.is_object()) return nullptr;
  const json::object& object = root.get_object();
  if (const json::value* inner = member(object, "invar"); inner != nullptr && inner->is_object())
    return &inner->get_object();
  return member(object, "output_digest") != nullptr ? &object : nullptr;
}

Result<Receipt> receipt_of(const json::object& object) {
  Receipt receipt;
  const auto text = [&](std::string_view name, std::string* out) -> Status {
    const json::value* value = member(object, name);
    if (value == nullptr || !value->is_string())
      return invalid_argument(fmt::format("the receipt has no \"{}\"", name));
    *out = std::string(value->get_string());
    return {};
  };
  RETURN_IF_ERROR(text("model_digest", &receipt.model_digest));
  RETURN_IF_ERROR(text("numerics", &receipt.numerics));
  RETURN_IF_ERROR(text("kv", &receipt.kv));
  RETURN_IF_ERROR(text("output_digest", &receipt.output_digest));
  const json::value* seed = member(object, "seed");
  const auto seed_number = seed == nullptr ? std::nullopt : seed_text(*seed);
  if (!seed_number) return invalid_argument("the receipt has no \"seed\"");
  receipt.seed = *seed_number;
  return receipt;
}

void set_seed(json::object& object, const std::string& seed) {
  object["seed"] = json::parse(seed);
}

}  // namespace

Result<Receipt> read_receipt(std::string_view text) {
  const auto root = api::parse_json(text);
  if (root.ok()) {
    const json::object* found = receipt_in(*root);
    if (found == nullptr)
      return invalid_argument("no receipt in it: neither an \"invar\" object nor an \"output_digest\"");
    return receipt_of(*found);
  }
  std::optional<Result<Receipt>> last;
  bool is_stream = false;
  const SseReader::OnEvent on_event = [&](std::string_view data) {
    is_stream = true;
    const auto frame = api::parse_json(data);
    if (!frame.ok()) return;
    if (const json::object* found = receipt_in(*frame)) last = receipt_of(*found);
  };
  SseReader reader;
  RETURN_IF_ERROR(reader.feed(text, on_event));
  RETURN_IF_ERROR(reader.feed("\n\n", on_event));  // a transcript may lack its last empty line
  if (last.has_value()) return *std::move(last);
  if (is_stream)
    return invalid_argument("no frame of this stream has a receipt; the last one of a whole answer does");
  return root.status().with_context("neither JSON nor the frames of a stream");
}

std::optional<ReceiptDifference> first_difference(const Receipt& ours, const Receipt& theirs) {
  const auto differs = [&](const char* field, const std::string& a, const std::string& b) {
    return a == b ? std::nullopt : std::optional(ReceiptDifference{field, a, b});
  };
  if (auto d = differs("model_digest", ours.model_digest, theirs.model_digest)) return d;
  if (auto d = differs("numerics", ours.numerics, theirs.numerics)) return d;
  if (auto d = differs("kv", ours.kv, theirs.kv)) return d;
  if (auto d = differs("seed", ours.seed, theirs.seed)) return d;
  return differs("output_digest", ours.output_digest, theirs.output_digest);
}

Result<RepeatedRequest> repeated_request(std::string_view request, const std::string& endpoint,
                                         const Receipt& receipt) {
  auto root = api::parse_json(request);
  if (!root.ok()) return root.status();
  if (!root->is_object()) return invalid_argument("a request is a JSON object");
  json::object& object = root->get_object();
  const bool has_messages = member(object, "messages") != nullptr,
             has_prompt = member(object, "prompt") != nullptr;
  RepeatedRequest out;
  if (endpoint.empty() && has_messages == has_prompt)
    return invalid_argument(
        has_messages ? "it has messages and a prompt; say which one counts: --endpoint chat|completions"
                     : "it has neither \"messages\" nor \"prompt\": no request of chat or completions");
  out.target =
      (endpoint.empty() ? has_messages : endpoint == "chat") ? "/v1/chat/completions" : "/v1/completions";
  if (const json::value* seed = member(object, "seed")) {
    const std::string own = seed_text(*seed).value_or(json_of(*seed));
    if (own != receipt.seed) out.other_seed = own;
  }
  set_seed(object, receipt.seed);
  object.erase("stream");
  object.erase("stream_options");
  out.body = json_of(*root);
  return out;
}

std::string with_seed(const std::string& body, const std::string& seed) {
  auto root = api::parse_json(body);
  if (!root.ok() || !root->is_object() || member(root->get_object(), "seed") != nullptr) return body;
  const auto number = api::parse_json(seed);
  if (!number.ok() || !seed_text(*number)) return body;
  set_seed(root->get_object(), *seed_text(*number));
  return json_of(*root);
}

bool is_determined(const std::string& body) {
  const auto root = api::parse_json(body);
  if (!root.ok() || !root->is_object()) return false;
  const json::object& object = root->get_object();
  if (member(object, "seed") != nullptr) return true;
  const json::value* temperature = member(object, "temperature");
  return temperature != nullptr && temperature->is_number() && temperature->to_number<double>() == 0;
}

}  // namespace invar
