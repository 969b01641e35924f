#include "format/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/error_text.h"
#include "base/quote.h"
#include "format/gguf_source.h"
#include "format/hf_source.h"
#include "format/packed_source.h"

namespace invar {

namespace {

Result<std::unique_ptr<ModelSource>> open_any(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) return not_found(fmt::format("{}: no such file or folder; check --model", path));
  if (fs::is_directory(status)) return open_hf_source(path, "model.safetensors");
  const fs::path file(path);
  if (fs::is_regular_file(status) && begins_packed(path)) return open_packed_source(path);
  if (file.extension() == ".safetensors") {
    const std::string folder = file.parent_path().empty() ? "." : file.parent_path().string();
    return open_hf_source(folder, file.filename().string());
  }
  return open_gguf_source(path);
}

}  // namespace

Result<std::unique_ptr<ModelSource>> ModelSource::open(const std::string& path) {
  auto source = open_any(path);
  if (source.ok() || source.status().code() != Code::kCorrupt) return source;
  return with_remedy(source.status(), "check --model, fetch the file again, or convert the model again");
}

const SourceTensor* ModelSource::find(std::string_view canonical_name) const {
  const auto it = by_name_.find(canonical_name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::string ModelSource::name() const {
  if (packed() != nullptr) return packed()->name;
  std::error_code ec;
  const std::filesystem::path full = std::filesystem::absolute(path(), ec).lexically_normal();
  return (full.has_filename() ? full : full.parent_path()).filename().string();
}

int64_t element_count(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (const int64_t d : shape)
    n *= d;
  return n;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<uint64_t> stored_bytes(const WeightType& type, std::span<const int64_t> shape) {
  constexpr uint64_t kMostElements = uint64_t{1} << 50;
  uint64_t elements = 1;
  for (const int64_t n : shape) {
    if (n < 0 || (n > 0 && elements > kMostElements / static_cast<uint64_t>(n)))
      return corrupt("its shape is beyond all files");
    elements *= static_cast<uint64_t>(n);
  }
  const auto block = static_cast<uint64_t>(type.block);
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (static_cast<uint64_t>(row) % block != 0)
    return corrupt(fmt::format("rows of {} elements are no multiple of the {} elements of a {} block", row,
                               block, type.name));
  return coded_bytes(type, static_cast<int64_t>(elements));
}

Status ModelSource::set_tensors(std::vector<SourceTensor> tensors) {
  tensors_ = std::move(tensors);
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!by_name_.emplace(tensors_[i].name, i).second)
      return corrupt(fmt::format("{}: two tensors stand for {}", path(), quote(tensors_[i].name)));
  return {};
}

}  // namespace invar
