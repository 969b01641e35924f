#include "format/packed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "base/error_text.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/quote.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/hf_source.h"
#include "format/packed_file.h"
#include "tensor/numerics_version.h"

namespace invar {
namespace {

constexpr char kMagic[8] = {'I', 'N', 'V', 'R', 'M', 'O', 'D', 'L'};
constexpr size_t kMagicStart = 4;  // bytes that the cache's files begin with, too
constexpr const char* kGgufFile = "metadata.gguf";
constexpr uint32_t kMaxText = 1 << 16, kMaxDims = 16;
constexpr const char* kAgain = "copy the file again, or convert its source again";

struct Head {
  char magic[8];
  uint32_t record_version, layout_version, numerics_version, reserved;
  uint64_t record_bytes, record_hash;
};
static_assert(sizeof(Head) == 40);

class RecordWriter {
 public:
  template <class T>
  void number(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void blob(std::span<const std::byte> bytes) {
    number<uint64_t>(bytes.size());
    append(bytes);
  }
  void text(std::string_view s) {
    if (s.size() > kMaxText)
      refuse(fmt::format("{}...: a name of {} bytes does not fit into a packed model, which takes {}",
                         quote(s.substr(0, 40)), s.size(), kMaxText));
    number(static_cast<uint32_t>(s.size()));
    append(std::as_bytes(std::span(s)));
  }
  void shape(std::span<const int64_t> dims, const std::string& tensor) {
    if (dims.size() > kMaxDims)
      refuse(fmt::format("tensor {}: {} dimensions do not fit into a packed model, which takes {}",
                         quote(tensor), dims.size(), kMaxDims));
    number(static_cast<uint32_t>(dims.size()));
    append(std::as_bytes(dims));
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  // What its reader would refuse.
  const Status& status() const { return status_; }

 private:
  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void refuse(std::string why) {
    if (status_.ok()) status_ = unsupported(std::move(why));
  }
  std::vector<std::byte> bytes_;
  Status status_;
};

// Everything is checked against the bytes that are left; what: the field, for errors.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> record) : left_(record) {}

  Status take(uint64_t n, const char* what, std::span<const std::byte>* out) {
    if (n > left_.size())
      return corrupt(fmt::format("the record ends within {}: {} bytes of {}", what, left_.size(), n));
    *out = left_.first(n);
    left_ = left_.subspan(n);
    return {};
  }
  template <class T>
  Status number(const char* what, T* out) {
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(take(sizeof(T), what, &bytes));
    std::memcpy(out, bytes.data(), sizeof(T));
    return {};
  }
  Status blob(const char* what, std::span<const std::byte>* out) {
    uint64_t size = 0;
    RETURN_IF_ERROR(number(what, &size));
    return take(size, what, out);
  }
  Status text(const char* what, std::string* out) {
    uint32_t size = 0;
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(number(what, &size));
    if (size > kMaxText) return corrupt(fmt::format("{} has {} bytes, more than {}", what, size, kMaxText));
    RETURN_IF_ERROR(take(size, what, &bytes));
    out->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  // How many entries follow, each of at least `least` bytes.
  Status count(const char* what, size_t least, uint32_t* out) {
    RETURN_IF_ERROR(number(what, out));
    if (*out > left_.size() / least) return corrupt(fmt::format("{} is {}, more than fit", what, *out));
    return {};
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

Status read_digest(RecordReader& in, const char* what, std::string* out) {
  RETURN_IF_ERROR(in.text(what, out));
  const bool hexadecimal = std::all_of(
      out->begin(), out->end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (out->size() != 2 * sizeof(Digest) || !hexadecimal)
    return corrupt(fmt::format("{} is {}, not 64 hexadecimal digits", what, quote(*out)));
  return {};
}

Status read_tensor(RecordReader& in, SourceTensor* tensor) {
  std::string type;
  uint32_t dims = 0;
  RETURN_IF_ERROR(in.text("a tensor's name", &tensor->name));
  RETURN_IF_ERROR(in.text("a tensor's stored name", &tensor->stored_name));
  const std::string what = "tensor " + quote(tensor->stored_name);
  RETURN_IF_ERROR(in.text(what.c_str(), &type));
  tensor->type = weight_type_by_name(type);
  if (tensor->type == nullptr) return corrupt(fmt::format("{} has the unknown type {}", what, quote(type)));
  RETURN_IF_ERROR(in.number(what.c_str(), &dims));
  if (dims > kMaxDims) return corrupt(fmt::format("{} has {} dimensions", what, dims));
  tensor->shape.resize(dims);
  for (int64_t& n : tensor->shape)
    RETURN_IF_ERROR(in.number(what.c_str(), &n));
  const Result<uint64_t> bytes = stored_bytes(*tensor->type, tensor->shape);
  if (!bytes.ok()) return bytes.status().with_context(what);
  RETURN_IF_ERROR(in.blob(what.c_str(), &tensor->data));
  if (!tensor->data.empty() && tensor->data.size() != *bytes)
    return corrupt(fmt::format("{} has {} bytes instead of {}", what, tensor->data.size(), *bytes));
  return {};
}

class PackedSource : public ModelSource {
 public:
  explicit PackedSource(MappedFile map) : map_(std::move(map)) {}

  Status read() {
    ASSIGN_OR_RETURN(const std::span<const std::byte> record, checked_record());
    RecordReader in(record);
    RETURN_IF_ERROR(read_origin(in));
    RETURN_IF_ERROR(read_files(in));
    std::vector<SourceTensor> tensors;
    uint32_t count = 0;
    RETURN_IF_ERROR(in.count("the number of tensors", 4 + 4 + 4 + 4 + 8, &count));
    for (uint32_t i = 0; i < count; ++i)
      RETURN_IF_ERROR(read_tensor(in, &tensors.emplace_back()));
    if (!in.at_end()) return corrupt("the record is longer than what it holds");
    return set_tensors(std::move(tensors));
  }

  SourceKind kind() const override { return kind_; }
  const std::string& path() const override { return map_.path(); }
  std::string architecture() const override {
    if (config_) {
      const auto type = config_->get_string("model_type");
      return type.ok() ? type->value_or("") : "";
    }
    const auto name = gguf_->get_string("general.architecture");
    return std::string(name.ok() ? name->value_or("") : "");
  }
  const GgufFile* gguf() const override { return gguf_ ? &*gguf_ : nullptr; }
  const HfConfig* config() const override { return config_ ? &*config_ : nullptr; }
  const PackedOrigin* packed() const override { return &origin_; }
  Result<std::string> side_file(const std::string& name) const override {
    const auto found = files_.find(name);
    if (found == files_.end() || gguf_)
      return not_found(fmt::format("{}: the packed model has no {}", path(), name));
    return std::string(found->second);
  }
  std::vector<std::string> files() const override { return {path()}; }
  std::string identity() const override { return identity_; }
  void drop_tensor_pages(std::span<const std::byte>) const override {}  // they hold a few numbers

 private:
  Result<std::span<const std::byte>> checked_record() {
    Head head;
    const std::span<const std::byte> all = map_.bytes();
    if (all.size() < sizeof head) return corrupt(fmt::format("the file is truncated; {}", kAgain));
    std::memcpy(&head, all.data(), sizeof head);
    if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0)
      return unsupported(
          "packed weights of the cache, which need their source: name that as the model, or write a file "
          "that "
          "stands alone: invar convert SRC FILE.packed --packed");
    const auto expect = [](const char* what, uint32_t found, uint32_t wanted) -> Status {
      if (found == wanted) return {};
      return unsupported(
          fmt::format("packed by {} version of Invar ({} {}, this one has {}); convert its source again",
                      found < wanted ? "an older" : "a newer", what, found, wanted));
    };
    RETURN_IF_ERROR(expect("record", head.record_version, kPackedModelVersion));
    RETURN_IF_ERROR(expect("layout", head.layout_version, kPackedLayoutVersion));
    RETURN_IF_ERROR(expect("numerics", head.numerics_version, kNumericsVersion));
    if (head.record_bytes > all.size() - sizeof head)
      return corrupt(fmt::format("the record has {} bytes, {} are there: the file is truncated; {}",
                                 head.record_bytes, all.size() - sizeof head, kAgain));
    const std::span<const std::byte> record = all.subspan(sizeof head, head.record_bytes);
    if (hash64(record) != head.record_hash)
      return corrupt(fmt::format("the record does not have its checksum; {}", kAgain));
    origin_.weights_at = round_up(sizeof head + record.size(), kPackedFileAlignment);
    origin_.front_hash = hash64(all.first(std::min<size_t>(origin_.weights_at, all.size())));
    return record;
  }

  Status read_origin(RecordReader& in) {
    uint32_t kind = 0;
    RETURN_IF_ERROR(in.number("the kind", &kind));
    if (kind > static_cast<uint32_t>(SourceKind::kHuggingFace))
      return corrupt(fmt::format("the kind of its source is {}, which is unknown", kind));
    kind_ = static_cast<SourceKind>(kind);
    RETURN_IF_ERROR(in.text("the name", &origin_.name));
    RETURN_IF_ERROR(read_digest(in, "the digest", &origin_.digest));
    return read_digest(in, "the identity", &identity_);
  }

  Status read_files(RecordReader& in) {
    uint32_t count = 0;
    RETURN_IF_ERROR(in.count("the number of files", 4 + 8, &count));
    for (uint32_t i = 0; i < count; ++i) {
      std::string name;
      std::span<const std::byte> bytes;
      RETURN_IF_ERROR(in.text("a file's name", &name));
      RETURN_IF_ERROR(in.blob("a file", &bytes));
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (!files_.emplace(name, text).second) return corrupt(fmt::format("it has two files {}", quote(name)));
    }
    const char* const main = kind_ == SourceKind::kGguf ? kGgufFile : "config.json";
    const auto found = files_.find(main);
    if (found == files_.end()) return corrupt(fmt::format("it has no {}", main));
    if (kind_ == SourceKind::kGguf) {
      ASSIGN_OR_RETURN(gguf_, GgufFile::parse(std::as_bytes(std::span(found->second)), main));
    } else {
      ASSIGN_OR_RETURN(config_, HfConfig::parse(found->second, main));
    }
    return {};
  }

  MappedFile map_;
  SourceKind kind_ = SourceKind::kGguf;
  PackedOrigin origin_;
  std::string identity_;
  std::map<std::string, std::string_view> files_;
  std::optional<GgufFile> gguf_;
  std::optional<HfConfig> config_;
};

Status put_files(const ModelSource& source, RecordWriter& out) {
  if (const GgufFile* gguf = source.gguf()) {
    out.number(uint32_t{1});
    out.text(kGgufFile);
    out.blob(gguf->metadata_file());
    return {};
  }
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : kSideFiles) {
    auto text = source.side_file(name);
    if (!text.ok() && text.status().code() == Code::kNotFound) continue;
    if (!text.ok()) return text.status();
    files.emplace_back(name, *std::move(text));
  }
  out.number(static_cast<uint32_t>(files.size()));
  for (const auto& [name, text] : files) {
    out.text(name);
    out.blob(std::as_bytes(std::span(text)));
  }
  return {};
}

}  // namespace

bool begins_packed(const std::string& path) {
  char start[kMagicStart] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return std::memcmp(start, kMagic, sizeof start) == 0;
}

Result<std::unique_ptr<ModelSource>> open_packed_source(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  auto source = std::make_unique<PackedSource>(std::move(map));
  if (const Status read = source->read(); !read.ok()) return located(read, path);
  return std::unique_ptr<ModelSource>(std::move(source));
}

Result<std::vector<std::byte>> packed_record(const ModelSource& source, const std::string& digest,
                                             std::span<const std::string> with_data) {
  RecordWriter out;
  out.number(Head());
  out.number(static_cast<uint32_t>(source.kind()));
  out.text(source.name());
  out.text(digest);
  out.text(source.identity());
  RETURN_IF_ERROR(put_files(source, out));
  out.number(static_cast<uint32_t>(source.tensors().size()));
  for (const SourceTensor& t : source.tensors()) {
    const bool wanted = std::find(with_data.begin(), with_data.end(), t.stored_name) != with_data.end();
    out.text(t.name);
    out.text(t.stored_name);
    out.text(t.type->name);
    out.shape(t.shape, t.stored_name);
    out.blob(wanted ? t.data : std::span<const std::byte>());
  }
  RETURN_IF_ERROR(out.status());
  const auto record = std::span(out.bytes()).subspan(sizeof(Head));
  Head head = {};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.record_version = kPackedModelVersion;
  head.layout_version = kPackedLayoutVersion;
  head.numerics_version = kNumericsVersion;
  head.record_bytes = record.size();
  head.record_hash = hash64(record);
  std::memcpy(out.bytes().data(), &head, sizeof head);
  out.bytes().resize(round_up(out.bytes().size(), kPackedFileAlignment));
  return std::move(out.bytes());
}

}  // namespace invar
