#include "format/gguf_source.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "format/file_identity.h"
#include "format/gguf.h"
#include "format/gguf_names.h"

namespace invar {
namespace {

class GgufSource : public ModelSource {
 public:
  GgufSource(MappedFile map, GgufFile file) : map_(std::move(map)), file_(std::move(file)) {}

  Status index() {
    std::vector<SourceTensor> tensors;
    tensors.reserve(file_.tensors().size());
    const std::string arch = architecture();
    for (const GgufTensor& t : file_.tensors())
      tensors.push_back({canonical_name(t.name, arch), std::string(t.name), t.type, t.shape, t.data});
    return set_tensors(std::move(tensors));
  }

  SourceKind kind() const override { return SourceKind::kGguf; }
  const std::string& path() const override { return map_.path(); }
  std::string architecture() const override {
    const auto name = file_.get_string("general.architecture");
    return name.ok() && name->has_value() ? std::string(**name) : std::string();
  }
  const GgufFile* gguf() const override { return &file_; }
  Result<std::string> side_file(const std::string& name) const override {
    return not_found(fmt::format("{}: a GGUF file has no side file {}", path(), name));
  }
  std::vector<std::string> files() const override { return {path()}; }
  std::string identity() const override { return file_identity(map_, file_.header_bytes()); }
  void drop_tensor_pages(std::span<const std::byte> part) const override {
    map_.drop(static_cast<size_t>(part.data() - map_.bytes().data()), part.size());
  }

 private:
  MappedFile map_;
  GgufFile file_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::parse(map.bytes(), path));
  auto source = std::make_unique<GgufSource>(std::move(map), std::move(file));
  RETURN_IF_ERROR(source->index());
  return std::unique_ptr<ModelSource>(std::move(source));
}

}  // namespace invar
