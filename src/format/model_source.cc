#include "format/model_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "format/gguf_source.h"
#include "format/hf_source.h"

namespace invar {

Result<std::unique_ptr<ModelSource>> ModelSource::open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) return not_found(fmt::format("{}: no such file or folder; check --model", path));
  if (fs::is_directory(status)) return open_hf_source(path, "model.safetensors");
  const fs::path file(path);
  if (file.extension() == ".safetensors") {
    const std::string folder = file.parent_path().empty() ? "." : file.parent_path().string();
    return open_hf_source(folder, file.filename().string());
  }
  return open_gguf_source(path);
}

}  // namespace invar
