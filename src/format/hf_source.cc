#include "format/hf_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "format/file_identity.h"
#include "format/hf_config.h"
#include "format/hf_quantized.h"
#include "format/json_value.h"
#include "format/safetensors.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSideFile = 256 << 20;
constexpr size_t kMaxIndex = 64 << 20, kMaxParts = 4096;

Result<std::string> read_text(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kMaxSideFile)
    return corrupt(fmt::format("{} has {} bytes, more than {}", path, file.bytes().size(), kMaxSideFile));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return std::string(path.ends_with(".json") ? without_bom(text) : text);
}

// MLX stacks the experts of a layer under a name of its own, and calls Mixtral's matrices as others do.
std::string canonical_stack(std::string name) {
  constexpr std::string_view kStack = ".switch_mlp.";
  const size_t at = name.find(kStack);
  if (at == std::string::npos) return name;
  name.replace(at, kStack.size(), ".experts.");
  if (name.find(".block_sparse_moe.") == std::string::npos) return name;
  constexpr std::pair<std::string_view, std::string_view> kMatrices[] = {
      {".gate_proj.", ".w1."}, {".down_proj.", ".w2."}, {".up_proj.", ".w3."}};
  for (const auto& [stored, wanted] : kMatrices)
    if (const size_t i = name.find(stored, at); i != std::string::npos)
      name.replace(i, stored.size(), wanted);
  return name;
}

// The decoder of a model of several parts has its names under another prefix.
std::string canonical(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
  };
  for (const auto& [stored, wanted] : kPrefixes)
    if (name.starts_with(stored)) return canonical_stack(std::string(wanted) + name.substr(stored.size()));
  return canonical_stack(name);
}

// "model" for "model.safetensors" and for "model-00002-of-00007.safetensors".
std::string stem_of(const std::string& weights) {
  constexpr std::string_view kSuffix = ".safetensors", kPart = "-00000-of-00000";
  const std::string stem = weights.substr(0, weights.size() - std::min(weights.size(), kSuffix.size()));
  if (stem.size() <= kPart.size()) return stem;
  const std::string_view tail = std::string_view(stem).substr(stem.size() - kPart.size());
  for (size_t i = 0; i < kPart.size(); ++i)
    if (kPart[i] == '0' ? tail[i] < '0' || tail[i] > '9' : tail[i] != kPart[i]) return stem;
  return stem.substr(0, stem.size() - kPart.size());
}

// Which file of the folder holds which tensor: {"weight_map": {"model.norm.weight":
// "model-00001-of-00002..."}}.
using TensorFiles = std::map<std::string, std::vector<std::string>>;
Result<TensorFiles> read_index(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  const auto bad = [&](const std::string& what) { return corrupt(fmt::format("{}: {}", path, what)); };
  Result<JsonValue> index = parse_json(text, {.bytes = kMaxIndex, .values = 1 << 20, .depth = 8});
  if (!index.ok()) return index.status().with_context(path);
  const JsonValue* map = index->find("weight_map");
  const auto* entries = map == nullptr ? nullptr : std::get_if<JsonValue::Object>(&map->data);
  if (entries == nullptr || entries->empty()) return bad("weight_map is missing, empty or no object");
  TensorFiles files;
  for (const auto& [tensor, value] : *entries) {
    const auto* file = std::get_if<std::string>(&value.data);
    if (file == nullptr || !file->ends_with(".safetensors") || file->find('/') != std::string::npos ||
        file->find('\0') != std::string::npos)
      return bad(fmt::format("tensor {} is in no .safetensors file of this folder", quote(tensor)));
    files[*file].push_back(tensor);
    if (files.size() > kMaxParts) return bad(fmt::format("it names more than {} files", kMaxParts));
  }
  return files;
}

class HfSource : public ModelSource {
 public:
  HfSource(std::string folder, std::string config_text, HfConfig config)
      : folder_(std::move(folder)), config_text_(std::move(config_text)), config_(std::move(config)) {}

  // wanted: tensors that must be in the file.
  Status add_file(const std::string& path, const std::vector<std::string>& wanted) {
    ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
    ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::parse(map.bytes(), path));
    std::map<std::string_view, bool> there;
    for (const SafetensorsTensor& t : file.tensors()) {
      there[t.name] = true;
      found_.push_back({canonical(t.name), t.name, t.type, t.shape, t.data});
    }
    for (const std::string& name : wanted)
      if (!there.contains(name))
        return corrupt(fmt::format(
            "{}: tensor {}, which the index says is here, is not; fetch the file again", path, quote(name)));
    parts_.push_back({std::move(map), file.header_bytes()});
    return {};
  }
  Status finish() {
    Result<std::vector<SourceTensor>> joined = join_quantized(config_text_, std::move(found_));
    if (!joined.ok()) return joined.status().with_context(folder_);
    return set_tensors(*std::move(joined));
  }

  SourceKind kind() const override { return SourceKind::kHuggingFace; }
  const std::string& path() const override { return folder_; }
  std::string architecture() const override {
    const auto type = config_.get_string("model_type");
    return type.ok() ? type->value_or("") : "";
  }
  const HfConfig* config() const override { return &config_; }
  Result<std::string> side_file(const std::string& name) const override {
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
      return invalid_argument(fmt::format("{} is no name of a side file", quote(name)));
    return read_text(folder_ + "/" + name);
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> there;
    for (const char* name : kSideFiles) {
      std::error_code ec;
      if (fs::exists(folder_ + "/" + name, ec)) there.push_back(folder_ + "/" + name);
    }
    for (const Part& part : parts_)
      there.push_back(part.map.path());
    return there;
  }
  std::string identity() const override {
    std::string text;
    for (const Part& part : parts_)
      text += file_identity(part.map, part.header_bytes) + " ";
    return hex(sha256(text + config_text_));
  }
  void drop_tensor_pages(std::span<const std::byte> part) const override {
    for (const Part& file : parts_) {
      const std::span<const std::byte> bytes = file.map.bytes();
      if (part.empty() || part.data() < bytes.data() || part.data() >= bytes.data() + bytes.size()) continue;
      file.map.drop(static_cast<size_t>(part.data() - bytes.data()), part.size());
    }
  }

 private:
  struct Part {
    MappedFile map;
    size_t header_bytes;
  };

  std::string folder_;
  std::vector<Part> parts_;
  std::vector<SourceTensor> found_;
  std::string config_text_;
  HfConfig config_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_hf_source(const std::string& folder, const std::string& weights) {
  const std::string stem = folder + "/" + stem_of(weights), index = stem + ".safetensors.index.json";
  std::error_code ec;
  if (!fs::exists(folder + "/config.json", ec))
    return not_found(
        fmt::format("{}: no config.json in this folder; a folder must be a Hugging Face model (config.json, "
                    "model.safetensors, tokenizer.json), a GGUF model is named by its file",
                    folder));
  ASSIGN_OR_RETURN(std::string text, read_text(folder + "/config.json"));
  Result<HfConfig> config = HfConfig::parse(text, "config.json");
  if (!config.ok()) return config.status().with_context(folder);
  auto source = std::make_unique<HfSource>(folder, std::move(text), *std::move(config));
  if (fs::exists(stem + ".safetensors", ec) || !fs::exists(index, ec)) {
    RETURN_IF_ERROR(source->add_file(folder + "/" + weights, {}));
  } else {
    ASSIGN_OR_RETURN(const TensorFiles files, read_index(index));
    for (const auto& [name, tensors] : files)
      if (!fs::exists(folder + "/" + name, ec))
        return not_found(fmt::format("{}: {} is missing, one of the {} files of this model; fetch it", folder,
                                     quote(name), files.size()));
    for (const auto& [name, tensors] : files)
      RETURN_IF_ERROR(source->add_file(folder + "/" + name, tensors));
  }
  RETURN_IF_ERROR(source->finish());
  return std::unique_ptr<ModelSource>(std::move(source));
}

}  // namespace invar
