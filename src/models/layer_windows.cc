#include "models/layer_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/quote.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "models/dense_keys.h"

namespace invar {
namespace {

constexpr int64_t kDefaultFirstWindowed = 28;  // max_window_layers of Hugging Face's configuration classes

Status refuse(const std::string& what) {
  return unsupported(what + " is not supported by this version; use another model");
}

// A mask of windowed layers becomes their windows.
void set_windows(const std::vector<bool>& windowed, int32_t window, ModelConfig* config) {
  for (size_t l = 0; l < windowed.size(); ++l)
    config->windows[l] = windowed[l] ? window : 0;
}

Result<std::vector<bool>> listed_layers(const std::vector<std::string>& types, size_t layers) {
  if (types.size() != layers)
    return corrupt(fmt::format("layer_types has {} elements for {} layers", types.size(), layers));
  std::vector<bool> windowed;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      return refuse(fmt::format("layer type {}", quote(type)));
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

void set_pattern(int64_t interval, int32_t window, ModelConfig* config) {
  for (size_t l = 0; l < config->windows.size(); ++l)
    config->windows[l] = (static_cast<int64_t>(l) + 1) % interval == 0 ? 0 : window;
}

// Families whose layers have windows by use_sliding_window.
Status parse_used_windows(const HfConfig& c, WindowRule rule, ModelConfig* config) {
  ASSIGN_OR_RETURN(const auto types, c.get_strings("layer_types"));
  ASSIGN_OR_RETURN(const auto size, c.get_int("sliding_window"));
  ASSIGN_OR_RETURN(const auto used, c.get_bool("use_sliding_window"));
  ASSIGN_OR_RETURN(const auto first, c.get_int("max_window_layers"));
  const size_t layers = config->windows.size();
  std::vector<bool> windowed(layers);
  if (types) {
    ASSIGN_OR_RETURN(windowed, listed_layers(*types, layers));
  } else if (rule == WindowRule::kNone) {
    windowed.assign(layers, size.value_or(0) > 0 && used.value_or(true));
  } else if (used.value_or(false)) {
    for (size_t l = 0; l < layers; ++l)
      windowed[l] = rule == WindowRule::kUnrotatedLayers
                        ? !config->rotates[l]
                        : static_cast<int64_t>(l) >= first.value_or(kDefaultFirstWindowed);
  }
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return {};
  if (rule == WindowRule::kNone)
    return refuse(types ? "layer type \"sliding_attention\""
                        : fmt::format("an active sliding window (sliding_window = {})", *size));
  if (!used.value_or(false))
    return corrupt("layer_types has \"sliding_attention\", but use_sliding_window is not true");
  if (!size) return corrupt("use_sliding_window is true, but sliding_window is missing");
  int32_t window = 0;
  RETURN_IF_ERROR(check_size("sliding_window", *size, kMaxContext, &window));
  set_windows(windowed, window, config);
  return {};
}

Status parse_hf_windows(const HfConfig& c, WindowRule rule, const WindowPattern& pattern,
                        ModelConfig* config) {
  if (rule != WindowRule::kAllLayers && rule != WindowRule::kPattern)
    return parse_used_windows(c, rule, config);
  ASSIGN_OR_RETURN(const auto types, c.get_strings("layer_types"));
  ASSIGN_OR_RETURN(auto size, c.get_int("sliding_window"));
  if (!size && pattern.size > 0) size = pattern.size;
  if (!size) return {};
  int32_t window = 0;
  RETURN_IF_ERROR(check_size("sliding_window", *size, kMaxContext, &window));
  if (types) {
    ASSIGN_OR_RETURN(const auto windowed, listed_layers(*types, config->windows.size()));
    set_windows(windowed, window, config);
    return {};
  }
  if (rule == WindowRule::kAllLayers) {
    config->windows.assign(config->windows.size(), window);
    return {};
  }
  ASSIGN_OR_RETURN(const auto stored, c.get_int("sliding_window_pattern"));
  int32_t interval = 0;
  RETURN_IF_ERROR(
      check_size("sliding_window_pattern", stored.value_or(pattern.interval), kMaxLayers, &interval));
  set_pattern(interval, window, config);
  return {};
}

// Without a list of layers the key means another thing for every architecture.
Status parse_gguf_windows(const GgufFile& file, const std::string& prefix, WindowRule rule,
                          const WindowPattern& pattern, ModelConfig* config) {
  const std::string key = prefix + ".attention.sliding_window", list_key = key + "_pattern";
  ASSIGN_OR_RETURN(auto size, file.get_int(key));
  if (!size && pattern.size > 0) size = pattern.size;
  if (size.value_or(0) == 0) return {};
  int32_t window = 0;
  RETURN_IF_ERROR(check_size(key.c_str(), *size, kMaxContext, &window));
  const GgufEntry* list = file.find(list_key);
  if (rule == WindowRule::kNone) return refuse(fmt::format("{} = {}", key, *size));
  if (list == nullptr || list->type != GgufType::kArray) {
    if (rule == WindowRule::kAllLayers) {
      config->windows.assign(config->windows.size(), window);
      return {};
    }
    if (rule == WindowRule::kPattern && (pattern.interval > 0 || list != nullptr)) {
      ASSIGN_OR_RETURN(const auto stored, file.get_int(list_key));
      int32_t interval = 0;
      RETURN_IF_ERROR(check_size(list_key.c_str(), stored.value_or(pattern.interval), kMaxLayers, &interval));
      set_pattern(interval, window, config);
      return {};
    }
    return refuse(fmt::format("{} = {} without a list of layers in {}", key, *size, list_key));
  }
  ASSIGN_OR_RETURN(const auto layers, file.get_ints(list_key));
  if (layers->size() != config->windows.size())
    return corrupt(
        fmt::format("{} has {} elements for {} layers", list_key, layers->size(), config->windows.size()));
  std::vector<bool> windowed;
  for (const int64_t on : *layers)
    windowed.push_back(on != 0);
  set_windows(windowed, window, config);
  return {};
}

}  // namespace

Status parse_windows(const ModelSource& source, WindowRule rule, ModelConfig* config,
                     const WindowPattern& pattern) {
  config->windows.assign(static_cast<size_t>(config->layers), 0);
  const Status read = source.kind() == SourceKind::kGguf
                          ? parse_gguf_windows(*source.gguf(), source.architecture(), rule, pattern, config)
                          : parse_hf_windows(*source.config(), rule, pattern, config);
  return read.ok() ? Status() : read.with_context(source.path());
}

}  // namespace invar
