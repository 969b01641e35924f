#include "format/gguf_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/quote.h"
#include "format/file_identity.h"
#include "format/gguf.h"
#include "format/gguf_factors.h"
#include "format/gguf_names.h"

namespace invar {
namespace {

constexpr int64_t kMaxParts = 10'000;

struct Part {
  MappedFile map;
  GgufFile file;
};

Result<Part> open_part(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::parse(map.bytes(), path));
  return Part{std::move(map), std::move(file)};
}

class GgufSource : public ModelSource {
 public:
  explicit GgufSource(std::vector<Part> parts) : parts_(std::move(parts)) {}

  Status index() {
    std::vector<SourceTensor> tensors;
    const std::string arch = architecture();
    for (const Part& part : parts_)
      for (const GgufTensor& t : part.file.tensors())
        tensors.push_back({canonical_name(t.name, arch), std::string(t.name), t.type, t.shape, t.data});
    Result<std::vector<SourceTensor>> joined = join_gguf_factors(arch, std::move(tensors));
    if (!joined.ok()) return joined.status().with_context(path());
    return set_tensors(*std::move(joined));
  }

  SourceKind kind() const override { return SourceKind::kGguf; }
  const std::string& path() const override { return parts_[0].map.path(); }
  std::string architecture() const override {
    const auto name = gguf()->get_string("general.architecture");
    return name.ok() && name->has_value() ? std::string(**name) : std::string();
  }
  const GgufFile* gguf() const override { return &parts_[0].file; }  // the first part has all metadata
  Result<std::string> side_file(const std::string& name) const override {
    return not_found(fmt::format("{}: a GGUF file has no side file {}", path(), name));
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> paths;
    for (const Part& part : parts_)
      paths.push_back(part.map.path());
    return paths;
  }
  std::string identity() const override {
    if (parts_.size() == 1) return file_identity(parts_[0].map, parts_[0].file.header_bytes());
    std::string text;
    for (const Part& part : parts_)
      text += file_identity(part.map, part.file.header_bytes()) + " ";
    return hex(sha256(text));
  }
  void drop_tensor_pages(std::span<const std::byte> bytes) const override {
    for (const Part& part : parts_) {
      const std::span<const std::byte> all = part.map.bytes();
      if (bytes.empty() || bytes.data() < all.data() || bytes.data() >= all.data() + all.size()) continue;
      part.map.drop(static_cast<size_t>(bytes.data() - all.data()), bytes.size());
    }
  }

 private:
  std::vector<Part> parts_;
};

// "x" of "x-00002-of-00005.gguf"; "" if the name is not of that kind.
std::string stem_of_part(const std::string& path) {
  constexpr std::string_view kTail = "-00000-of-00000.gguf";
  if (path.size() <= kTail.size()) return "";
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail.size());
  for (size_t i = 0; i < kTail.size(); ++i)
    if (kTail[i] == '0' ? !std::isdigit(static_cast<unsigned char>(tail[i])) : tail[i] != kTail[i]) return "";
  return path.substr(0, path.size() - kTail.size());
}
std::string part_path(const std::string& stem, int64_t part, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part + 1, count);
}

// A number of a part's metadata that must have one value.
Status expect_number(const Part& part, const char* key, int64_t wanted) {
  ASSIGN_OR_RETURN(const auto value, part.file.get_int(key));
  if (value.value_or(wanted + 1) == wanted) return {};
  return corrupt(fmt::format("{}: {} is {}, not {}; the files are not of one model", part.map.path(), key,
                             value ? fmt::to_string(*value) : "missing", wanted));
}

Result<std::vector<Part>> open_parts(const std::string& stem, int64_t count) {
  std::error_code ec;
  for (int64_t i = 0; i < count; ++i)
    if (const std::string path = part_path(stem, i, count); !std::filesystem::exists(path, ec))
      return not_found(
          fmt::format("{} is missing, one of the {} files of this model; fetch it", path, count));
  std::vector<Part> parts;
  int64_t tensors = 0;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Part part, open_part(part_path(stem, i, count)));
    RETURN_IF_ERROR(expect_number(part, "split.no", i));
    RETURN_IF_ERROR(expect_number(part, "split.count", count));
    tensors += static_cast<int64_t>(part.file.tensors().size());
    parts.push_back(std::move(part));
  }
  ASSIGN_OR_RETURN(const auto all, parts[0].file.get_int("split.tensors.count"));
  if (all && *all != tensors)
    return corrupt(fmt::format("{}: split.tensors.count is {}, but the {} files hold {} tensors",
                               parts[0].map.path(), *all, count, tensors));
  return parts;
}

}  // namespace

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path) {
  ASSIGN_OR_RETURN(Part first, open_part(path));
  ASSIGN_OR_RETURN(const auto count, first.file.get_int("split.count"));
  std::vector<Part> parts;
  if (count.value_or(1) > 1) {
    if (*count > kMaxParts)
      return corrupt(fmt::format("{}: split.count is {}, more than {}", path, *count, kMaxParts));
    const std::string stem = stem_of_part(path);
    if (stem.empty())
      return unsupported(
          fmt::format("{}: the model is split over {} files, which are found by their names: this one should "
                      "end in -00001-of-{:05}.gguf or the like",
                      path, *count, *count));
    ASSIGN_OR_RETURN(parts, open_parts(stem, *count));
  } else {
    parts.push_back(std::move(first));
  }
  auto source = std::make_unique<GgufSource>(std::move(parts));
  RETURN_IF_ERROR(source->index());
  return std::unique_ptr<ModelSource>(std::move(source));
}

}  // namespace invar
