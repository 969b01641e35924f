#include "api/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

#include "api/chain_fields.h"
#include "api/json_text.h"
#include "base/hash.h"
#include "base/quote.h"
#include "engine/request.h"
#include "sampling/numbers.h"

namespace invar::api {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

bool read_number(const Fields& fields, const char* key, const SamplingNumber& number,
                 SamplingParams* params) {
  double x = 0;
  int64_t n = 0;
  if (number.whole()) {
    if (!fields.integer(key, int64_t(number.min), int64_t(number.max), &n)) return false;
    x = double(n);
  } else if (!fields.number(key, number.min, number.max, &x)) {
    return false;
  }
  number.set(x, params);
  return true;
}

void read_numbers(const Fields& fields, SamplingParams* params) {
  for (const SamplingNumber& number : sampling_numbers()) {
    const bool named = read_number(fields, number.name, number, params);
    const double first = number.get(*params);
    if (number.alias == nullptr || !read_number(fields, number.alias, number, params)) continue;
    if (named && number.get(*params) != first)
      fields.fail(number.alias, fmt::format("contradicts {}; send one of the two", number.name));
  }
}

void read_logit_bias(const Fields& fields, int32_t vocab, SamplingParams* params) {
  const json::object* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  const Path path = fields.at("logit_bias");
  if (biases->size() > kMaxLogitBias)
    return fields.fail("logit_bias",
                       fmt::format("has {} entries; at most {} are allowed", biases->size(), kMaxLogitBias));
  for (const auto& [key, value] : *biases) {
    int32_t id = -1;
    const char* end = key.data() + key.size();
    const auto [at, error] = std::from_chars(key.data(), end, id);
    if (error != std::errc() || at != end || id < 0 || id >= vocab) {
      fields.fail("logit_bias", fmt::format("{} is not a token id; the model has the ids 0 to {}",
                                            quote({key.data(), key.size()}), vocab - 1));
      return;
    }
    double bias = 0;
    if (value.is_null() ||
        !read_number(value, {&path, {key.data(), key.size()}}, fields.sink(), -100, 100, &bias))
      continue;
    // "7" and "07" are one id: the last one counts, as for equal keys.
    auto& list = params->logit_bias;
    std::erase_if(list, [id](const auto& entry) { return entry.first == id; });
    list.emplace_back(id, float(bias));
  }
}

uint64_t random_seed() {
  std::random_device device;
  // JavaScript reads numbers up to 2^53 exactly.
  return (uint64_t{device()} << 32 | device()) & ((uint64_t{1} << 53) - 1);
}

void read_seed(const Fields& fields, GenerationFields* out) {
  SamplingParams& params = out->sampling;
  const json::value* value = fields.find("seed");
  int64_t seed = 0;
  if (value == nullptr) {
    params.seed = random_seed();
    out->seed = fmt::format("{}", params.seed);
  } else if (value->is_uint64()) {
    params.seed = value->get_uint64();
    out->seed = fmt::format("{}", params.seed);
  } else if (value->is_double() && std::fabs(value->get_double()) > 0x1p53) {
    fields.fail("seed", "must be an integer of 64 bits");
  } else if (fields.integer("seed", INT64_MIN, INT64_MAX, &seed)) {
    params.seed = uint64_t(seed);  // a negative one: two's complement
    out->seed = fmt::format("{}", seed);
  }
}

void read_stop_string(const json::value& value, const Path& path, ErrorSink& sink,
                      std::vector<std::string>* out) {
  std::string_view text;
  if (!read_string(value, path, sink, &text)) return;
  if (text.empty()) return sink.fail(path, "is empty");
  if (text.size() > kMaxStopStringBytes)
    return sink.fail(path,
                     fmt::format("has {} bytes; at most {} are allowed", text.size(), kMaxStopStringBytes));
  if (std::find(out->begin(), out->end(), text) == out->end()) out->emplace_back(text);
}

void read_stop(const Fields& fields, std::vector<std::string>* out) {
  const json::value* value = fields.find("stop");
  if (value == nullptr) return;
  const Path path = fields.at("stop");
  if (value->is_string()) return read_stop_string(*value, path, fields.sink(), out);
  if (!value->is_array())
    return fields.fail(
        "stop", fmt::format("must be a string or an array of strings, not {}", json_type_name(*value)));
  const json::array& list = value->get_array();
  if (list.size() > kMaxStopStrings)
    return fields.fail("stop",
                       fmt::format("has {} strings; at most {} are allowed", list.size(), kMaxStopStrings));
  for (size_t i = 0; i < list.size(); ++i)
    read_stop_string(list[i], {&path, i}, fields.sink(), out);
}

void read_stop_ids(const Fields& fields, int32_t vocab, std::vector<int32_t>* out) {
  const json::array* list = fields.array("stop_token_ids");
  if (list == nullptr) return;
  const Path path = fields.at("stop_token_ids");
  if (list->size() > kMaxStopIds)
    return fields.fail("stop_token_ids",
                       fmt::format("has {} ids; at most {} are allowed", list->size(), kMaxStopIds));
  for (size_t i = 0; i < list->size(); ++i) {
    int32_t id = 0;
    if (read_token_id((*list)[i], {&path, i}, fields.sink(), vocab, &id)) out->push_back(id);
  }
}

void read_max_tokens(const Fields& fields, int64_t min, int64_t* out) {
  // The newer name counts when both are there.
  fields.integer("max_tokens", min, kMaxInt32, out);
  fields.integer("max_completion_tokens", min, kMaxInt32, out);
}

void read_stream(const Fields& fields, GenerationFields* out) {
  fields.boolean("stream", &out->stream);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out->stream) return fields.fail("stream_options", "is only allowed together with \"stream\": true");
  const Path path = fields.at("stream_options");
  Fields(*options, path, fields.sink()).boolean("include_usage", &out->include_usage);
}

}  // namespace

bool read_token_id(const json::value& value, const Path& path, ErrorSink& sink, int32_t vocab, int32_t* out) {
  // In JSON 1.0 is the number 1.
  const bool whole = !value.is_double() || value.get_double() == std::trunc(value.get_double());
  if (!value.is_number() || !whole) {
    sink.fail(path, fmt::format("must be a token id, not {}", json_type_name(value)));
    return false;
  }
  const double id = value.to_number<double>();  // rounded only where it is no id
  if (!(id >= 0 && id < vocab)) {
    std::string shown;
    append_json(shown, value);
    sink.fail(path, fmt::format("{} is not a token id; the model has the ids 0 to {}", shown, vocab - 1));
    return false;
  }
  *out = int32_t(id);
  return true;
}

GenerationFields read_generation_fields(const Fields& fields, const Service& service,
                                        int64_t min_max_tokens) {
  GenerationFields out;
  out.sampling = service.sampling_defaults;
  read_numbers(fields, &out.sampling);
  read_chain_fields(fields, service, &out.sampling);
  read_logit_bias(fields, service.vocab, &out.sampling);
  read_seed(fields, &out);
  read_max_tokens(fields, min_max_tokens, &out.max_tokens);
  read_stop(fields, &out.stop);
  read_stop_ids(fields, service.vocab, &out.stop_ids);
  fields.boolean("ignore_eos", &out.ignore_eos);
  std::string_view salt;
  if (fields.string("cache_salt", &salt)) out.cache_salt = hash64(std::as_bytes(std::span(salt))) | 1;
  int64_t priority = 0;
  if (fields.integer("priority", -kMaxPriority, kMaxPriority, &priority)) out.priority = int32_t(priority);
  int64_t n = 1;
  if (fields.integer("n", 1, service.max_choices, &n)) out.n = int32_t(n);
  read_stream(fields, &out);
  return out;
}

void check_model(const Fields& fields, const Service& service) {
  std::string_view model;
  if (!fields.string("model", &model) || service.accept_any_model) return;
  if (std::find(service.model_names.begin(), service.model_names.end(), model) != service.model_names.end())
    return;
  std::string names;
  for (const std::string& name : service.model_names)
    names += (names.empty() ? "" : ", ") + name;
  fields.sink().fail_with({404, fmt::format("the model {} does not exist; served: {}", quote(model), names),
                           "model", "model_not_found"});
}

void refuse_unsupported(const Fields& fields) {
  if (const json::object* format = fields.object("response_format")) {
    const Path path = fields.at("response_format");
    std::string_view type;
    if (Fields(*format, path, fields.sink()).required_string("type", &type) && type != "text")
      fields.sink().fail({&path, "type"},
                         fmt::format("{} is not supported by this server yet; only \"text\" is", quote(type)),
                         "unsupported_value");
  }
  for (const char* key : {"grammar", "json_schema", "structured_outputs", "guided_json", "guided_regex",
                          "guided_choice", "guided_grammar", "web_search_options", "audio"}) {
    if (fields.has(key)) fields.fail(key, "is not supported by this server yet", "unsupported_parameter");
  }
  if (const json::array* kinds = fields.array("modalities")) {
    const Path path = fields.at("modalities");
    for (size_t i = 0; i < kinds->size(); ++i) {
      std::string_view kind;
      if (read_string((*kinds)[i], {&path, i}, fields.sink(), &kind) && kind != "text")
        fields.sink().fail({&path, i}, fmt::format("the served model answers in text, not {}", quote(kind)),
                           "unsupported_value");
    }
  }
  if (fields.has("chat_template"))
    fields.fail("chat_template", "a request may not bring its own template; the server has --chat-template",
                "unsupported_parameter");
}

}  // namespace invar::api
