#include "cli/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "base/quote.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "sampling/chain.h"

namespace invar {
namespace {

constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();

// The ranges are those of requests (docs/api.md). "": the format has no such key.
struct NumberKey {
  const char* name;
  const char* gguf;
  const char* hugging_face;
  double min, max;
  float SamplingParams::* value;
};
constexpr NumberKey kNumbers[] = {
    {"temperature", "temp", "temperature", 0, 2, &SamplingParams::temperature},
    {"top_p", "top_p", "top_p", 0, 1, &SamplingParams::top_p},
    {"min_p", "min_p", "min_p", 0, 1, &SamplingParams::min_p},
    {"typical_p", "", "typical_p", 0, 1, &SamplingParams::typical_p},
    {"xtc_probability", "xtc_probability", "", 0, 1, &SamplingParams::xtc_probability},
    {"xtc_threshold", "xtc_threshold", "", 0, 1, &SamplingParams::xtc_threshold},
    {"repetition_penalty", "penalty_repeat", "repetition_penalty", 0.01, 10,
     &SamplingParams::repetition_penalty},
    {"mirostat_tau", "mirostat_tau", "", 0, 100, &SamplingParams::mirostat_tau},
    {"mirostat_eta", "mirostat_eta", "", 0, 1, &SamplingParams::mirostat_eta},
};

struct IntegerKey {
  const char* name;
  const char* gguf;
  const char* hugging_face;
  double min, max;
  int32_t SamplingParams::* value;
};
constexpr IntegerKey kIntegers[] = {
    {"top_k", "top_k", "top_k", -1, kMaxInt32, &SamplingParams::top_k},
    {"repeat_last_n", "penalty_last_n", "", -1, kMaxInt32, &SamplingParams::penalty_last_n},
    {"mirostat", "mirostat", "", 0, 2, &SamplingParams::mirostat},
};

using Value = std::optional<double>;

class Reader {
 public:
  Reader(SamplingDefaults* out, std::string label) : out_(out), label_(std::move(label)) {}

  // Nothing where the value is absent or was complained of.
  Value checked(std::string_view key, const Result<Value>& read, double min, double max) {
    if (!read.ok()) {
      warn(read.status().message());
    } else if (read->has_value() && !(**read >= min && **read <= max)) {
      warn(fmt::format("{}{}: {} is not within {} and {}", label_, key, **read, min, max));
    } else {
      return *read;
    }
    return {};
  }
  void took(std::string_view what) {
    out_->taken += fmt::format("{}{}", out_->taken.empty() ? "" : ", ", what);
  }
  void warn(std::string_view what) { out_->warnings.push_back(fmt::format("{}; ignored", what)); }
  const std::string& label() const { return label_; }

  // get: the value of a key of this format.
  template <class Get>
  void read_all(const char* NumberKey::* number_key, const char* IntegerKey::* integer_key, const Get& get) {
    SamplingParams& p = out_->params;
    for (const NumberKey& k : kNumbers) {
      const std::string_view key = k.*number_key;
      if (key.empty()) continue;
      const Value x = checked(key, get(key), k.min, k.max);
      if (!x.has_value()) continue;
      p.*k.value = float(*x);
      took(fmt::format("{} {}", k.name, p.*k.value));
    }
    for (const IntegerKey& k : kIntegers) {
      const std::string_view key = k.*integer_key;
      if (key.empty()) continue;
      const Value x = checked(key, get(key), k.min, k.max);
      if (!x.has_value()) continue;
      if (double(int32_t(*x)) != *x) {
        warn(fmt::format("{}{}: {} is no whole number", label_, key, *x));
        continue;
      }
      p.*k.value = int32_t(*x);
      took(fmt::format("{} {}", k.name, p.*k.value));
    }
    // As in requests: 0 keeps one token, and a temperature too small to divide by takes the most likely one.
    p.top_p = std::max(p.top_p, std::numeric_limits<float>::min());
    p.typical_p = std::max(p.typical_p, std::numeric_limits<float>::min());
    p.top_k = std::max(p.top_k, 0);
    if (p.temperature < kMinTemperature) p.temperature = 0;
  }

 private:
  SamplingDefaults* out_;
  std::string label_;
};

Result<Value> gguf_number(const GgufFile& file, const std::string& key) {
  if (const auto x = file.get_f32(key); x.ok()) return x->has_value() ? Value(double(**x)) : Value();
  ASSIGN_OR_RETURN(const auto n, file.get_int(key));
  return n.has_value() ? Value(double(*n)) : Value();
}

// Names of links, separated by semicolons.
void read_sequence(const GgufFile& file, Reader& reader, SamplingParams* params) {
  const std::string key = reader.label() + "sequence";
  const auto text = file.get_string(key);
  if (!text.ok()) return reader.warn(text.status().message());
  if (!text->has_value()) return;
  std::vector<std::string_view> names;
  for (size_t at = 0; at <= (*text)->size();) {
    const size_t end = std::min((*text)->find(';', at), (*text)->size());
    names.push_back((*text)->substr(at, end - at));
    at = end + 1;
  }
  auto chain = chain_of(names);
  if (!chain.ok()) return reader.warn(chain.status().with_context(key).message());
  params->chain = std::move(*chain);
  reader.took("samplers " + printable_within(**text, 200));
}

}  // namespace

SamplingDefaults sampling_defaults(const ModelSource& source, const SamplingParams& base) {
  SamplingDefaults out;
  out.params = base;
  if (const GgufFile* file = source.gguf()) {
    Reader reader(&out, "general.sampling.");
    reader.read_all(&NumberKey::gguf, &IntegerKey::gguf, [&](std::string_view key) {
      return gguf_number(*file, reader.label() + std::string(key));
    });
    read_sequence(*file, reader, &out.params);
    return out;
  }
  const auto text = source.side_file("generation_config.json");
  if (!text.ok() && text.status().code() == Code::kNotFound) return out;
  Reader reader(&out, "generation_config.json: ");
  if (!text.ok()) {
    reader.warn(text.status().message());
    return out;
  }
  const auto config = HfConfig::parse(*text, "generation_config.json");
  if (!config.ok()) {
    reader.warn(config.status().message());
    return out;
  }
  reader.read_all(&NumberKey::hugging_face, &IntegerKey::hugging_face,
                  [&](std::string_view key) { return config->get_double(key); });
  return out;
}

}  // namespace invar
