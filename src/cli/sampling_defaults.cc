#include "cli/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/quote.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "sampling/chain.h"
#include "sampling/numbers.h"

namespace invar {
namespace {

using Value = std::optional<double>;

class Reader {
 public:
  Reader(SamplingDefaults* out, std::string label) : out_(out), label_(std::move(label)) {}

  void took(std::string_view what) {
    out_->taken += fmt::format("{}{}", out_->taken.empty() ? "" : ", ", what);
  }
  void warn(std::string_view what) { out_->warnings.push_back(fmt::format("{}; ignored", what)); }
  const std::string& label() const { return label_; }

  // get: the value of a key of this format.
  template <class Get>
  void read_numbers(const char* SamplingNumber::* key_of, const Get& get) {
    for (const SamplingNumber& number : sampling_numbers()) {
      const char* const key = number.*key_of;
      if (key == nullptr) continue;
      const Result<Value> x = get(key);
      if (!x.ok()) {
        warn(x.status().message());
      } else if (x->has_value()) {
        take(number, key, **x);
      }
    }
  }

 private:
  void take(const SamplingNumber& number, const char* key, double x) {
    if (!number.within(x))
      return warn(fmt::format("{}{}: {} is not within {} and {}", label_, key, x, number.min, number.max));
    if (number.whole() && x != std::trunc(x))
      return warn(fmt::format("{}{}: {} is no whole number", label_, key, x));
    number.set(x, &out_->params);
    took(fmt::format("{} {}", number.name, number.text(out_->params)));
  }

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
  auto chain = chain_of(split_links(**text));
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
    reader.read_numbers(&SamplingNumber::gguf,
                        [&](const char* key) { return gguf_number(*file, reader.label() + key); });
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
  reader.read_numbers(&SamplingNumber::hugging_face,
                      [&](const char* key) { return config->get_double(key); });
  return out;
}

}  // namespace invar
