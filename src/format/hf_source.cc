#include "format/hf_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "format/file_identity.h"
#include "format/hf_config.h"
#include "format/safetensors.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSideFile = 256 << 20;

Result<std::string> read_text(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kMaxSideFile)
    return corrupt(fmt::format("{} has {} bytes, more than {}", path, file.bytes().size(), kMaxSideFile));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return std::string(path.ends_with(".json") ? without_bom(text) : text);
}

class HfSource : public ModelSource {
 public:
  HfSource(std::string folder, MappedFile map, size_t header_bytes, std::string config_text, HfConfig config)
      : folder_(std::move(folder)),
        map_(std::move(map)),
        header_bytes_(header_bytes),
        config_text_(std::move(config_text)),
        config_(std::move(config)) {}

  Status index(const SafetensorsFile& file) {
    std::vector<SourceTensor> tensors;
    tensors.reserve(file.tensors().size());
    for (const SafetensorsTensor& t : file.tensors())
      tensors.push_back({t.name, t.name, t.type, t.shape, t.data});
    return set_tensors(std::move(tensors));
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
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "chat_template.jinja"}) {
      std::error_code ec;
      if (fs::exists(folder_ + "/" + name, ec)) there.push_back(folder_ + "/" + name);
    }
    there.push_back(map_.path());
    return there;
  }
  std::string identity() const override {
    return hex(sha256(file_identity(map_, header_bytes_) + " " + config_text_));
  }
  void drop_tensor_pages(std::span<const std::byte> part) const override {
    if (!part.empty()) map_.drop(static_cast<size_t>(part.data() - map_.bytes().data()), part.size());
  }

 private:
  std::string folder_;
  MappedFile map_;
  size_t header_bytes_;
  std::string config_text_;
  HfConfig config_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_hf_source(const std::string& folder, const std::string& weights) {
  const std::string path = folder + "/" + weights;
  std::error_code ec;
  if (fs::exists(path + ".index.json", ec))
    return unsupported(
        fmt::format("{}: the weights are split over several files ({}.index.json), which this version does "
                    "not read; merge them into one model.safetensors",
                    folder, weights));
  if (!fs::exists(folder + "/config.json", ec))
    return not_found(
        fmt::format("{}: no config.json in this folder; a folder must be a Hugging Face model (config.json, "
                    "model.safetensors, tokenizer.json), a GGUF model is named by its file",
                    folder));
  ASSIGN_OR_RETURN(std::string text, read_text(folder + "/config.json"));
  ASSIGN_OR_RETURN(HfConfig config, HfConfig::parse(text, folder + "/config.json"));
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::parse(map.bytes(), path));
  auto source = std::make_unique<HfSource>(folder, std::move(map), file.header_bytes(), std::move(text),
                                           std::move(config));
  RETURN_IF_ERROR(source->index(file));
  return std::unique_ptr<ModelSource>(std::move(source));
}

}  // namespace invar
