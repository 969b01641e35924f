#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>

#include "base/quote.h"
#include "format/lfs_pointer.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read in place");

constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxName = 65535;  // of keys, by the format
constexpr int kMaxDims = 4;
constexpr int kMaxNesting = 8;  // arrays of arrays

// Bytes of one value; 0 for strings and arrays.
size_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// A cursor that never leaves the file. `what` says in messages what was being read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  Status take(uint64_t n, const std::string& what, std::span<const std::byte>* out) {
    if (n > left())
      return corrupt(
          fmt::format("truncated: {} needs {} bytes at offset {}, {} are left", what, n, at_, left()));
    *out = bytes_.subspan(at_, n);
    at_ += n;
    return {};
  }
  template <class T>
  Status number(const std::string& what, T* out) {
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(take(sizeof(T), what, &bytes));
    *out = load<T>(bytes.data());
    return {};
  }
  Status string(const std::string& what, std::string_view* out) {
    uint64_t length = 0;
    RETURN_IF_ERROR(number(what, &length));
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(take(length, what, &bytes));
    *out = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

Status check_name(std::string_view name, const char* what) {
  if (name.empty()) return corrupt(fmt::format("a {} is empty", what));
  if (name.size() > kMaxName)
    return corrupt(fmt::format("a {} has {} bytes, more than {}", what, name.size(), kMaxName));
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      return corrupt(fmt::format("{} {} holds control characters", what, quote(name)));
  return {};
}

Status check_type(uint32_t type, const std::string& what) {
  if (type <= static_cast<uint32_t>(GgufType::kF64)) return {};
  return corrupt(fmt::format("{} has unknown value type {}", what, type));
}

Status check_bools(std::span<const std::byte> bytes, const std::string& what) {
  for (const std::byte b : bytes)
    if (static_cast<uint8_t>(b) > 1)
      return corrupt(fmt::format("{} holds a bool of value {}", what, static_cast<int>(b)));
  return {};
}

// Steps over the elements of an array; every nested length is checked.
Status skip_elements(Reader& in, GgufType element, uint64_t count, int depth, const std::string& what) {
  if (const size_t size = fixed_size(element); size != 0) {
    if (count > in.left() / size)
      return corrupt(fmt::format("truncated: {} wants {} elements of {} bytes, {} bytes are left", what,
                                 count, size, in.left()));
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(in.take(count * size, what, &bytes));
    return element == GgufType::kBool ? check_bools(bytes, what) : Status();
  }
  const size_t least = element == GgufType::kString ? 8 : 12;  // a length; an element type and a length
  if (count > in.left() / least)
    return corrupt(fmt::format("truncated: {} wants {} elements, {} bytes are left", what, count, in.left()));
  if (element == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view ignored;
      RETURN_IF_ERROR(in.string(what, &ignored));
    }
    return {};
  }
  if (depth == kMaxNesting) return corrupt(fmt::format("{} nests arrays deeper than {}", what, kMaxNesting));
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t inner = 0;
    uint64_t inner_count = 0;
    RETURN_IF_ERROR(in.number(what, &inner));
    RETURN_IF_ERROR(check_type(inner, what));
    RETURN_IF_ERROR(in.number(what, &inner_count));
    RETURN_IF_ERROR(skip_elements(in, static_cast<GgufType>(inner), inner_count, depth + 1, what));
  }
  return {};
}

Status read_entry(Reader& in, std::span<const std::byte> file, GgufEntry* entry) {
  RETURN_IF_ERROR(in.string("a metadata key", &entry->key));
  RETURN_IF_ERROR(check_name(entry->key, "metadata key"));
  const std::string what = "metadata " + quote(entry->key);
  uint32_t type = 0;
  RETURN_IF_ERROR(in.number(what, &type));
  RETURN_IF_ERROR(check_type(type, what));
  entry->type = static_cast<GgufType>(type);
  if (entry->type == GgufType::kString) {
    std::string_view text;
    RETURN_IF_ERROR(in.string(what, &text));
    entry->bytes = std::as_bytes(std::span(text.data(), text.size()));
    return {};
  }
  if (entry->type == GgufType::kArray) {
    uint32_t element = 0;
    RETURN_IF_ERROR(in.number(what, &element));
    RETURN_IF_ERROR(check_type(element, what));
    entry->element = static_cast<GgufType>(element);
    RETURN_IF_ERROR(in.number(what, &entry->count));
    const size_t begin = in.at();
    RETURN_IF_ERROR(skip_elements(in, entry->element, entry->count, 1, what));
    entry->bytes = file.subspan(begin, in.at() - begin);
    return {};
  }
  RETURN_IF_ERROR(in.take(fixed_size(entry->type), what, &entry->bytes));
  return entry->type == GgufType::kBool ? check_bools(entry->bytes, what) : Status();
}

struct TensorInfo {
  GgufTensor tensor;
  uint64_t offset = 0;  // from the start of the data section
  uint64_t bytes = 0;
};

Status read_tensor(Reader& in, TensorInfo* info) {
  GgufTensor& tensor = info->tensor;
  RETURN_IF_ERROR(in.string("a tensor name", &tensor.name));
  RETURN_IF_ERROR(check_name(tensor.name, "tensor name"));
  const std::string what = "tensor " + quote(tensor.name);
  uint32_t dims = 0;
  RETURN_IF_ERROR(in.number(what, &dims));
  if (dims < 1 || dims > kMaxDims)
    return corrupt(fmt::format("{} has {} dimensions, not 1 to {}", what, dims, kMaxDims));
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dims; ++d) {
    uint64_t n = 0;
    RETURN_IF_ERROR(in.number(what, &n));
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if (n == 0) return corrupt(fmt::format("{} has a dimension of size 0", what));
    if (n > kMax / elements) return corrupt(fmt::format("the dimensions of {} overflow", what));
    elements *= n;
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(n));
  }
  uint32_t type = 0;
  RETURN_IF_ERROR(in.number(what, &type));
  tensor.type = type > 0xFFFF ? nullptr : weight_type_by_ggml(static_cast<int32_t>(type));
  if (tensor.type == nullptr)
    return unsupported(fmt::format("{} has type number {}, which is unknown to this build", what, type));
  const auto block = static_cast<uint64_t>(tensor.type->block);
  if (static_cast<uint64_t>(tensor.shape.back()) % block != 0)
    return corrupt(fmt::format("{}: rows of {} elements are no multiple of the {} elements of a {} block",
                               what, tensor.shape.back(), block, tensor.type->name));
  const uint64_t blocks = elements / block;
  if (blocks > std::numeric_limits<int64_t>::max() / static_cast<uint64_t>(tensor.type->block_bytes))
    return corrupt(fmt::format("the size of {} overflows", what));
  info->bytes = blocks * static_cast<uint64_t>(tensor.type->block_bytes);
  return in.number(what, &info->offset);
}

// Places the tensors in the data section: inside it, aligned, none over another.
Status place(std::vector<TensorInfo>& infos, std::span<const std::byte> data, uint64_t alignment) {
  for (TensorInfo& info : infos) {
    const std::string_view name = info.tensor.name;
    if (info.offset % alignment != 0)
      return corrupt(fmt::format("tensor {} lies at offset {}, no multiple of the alignment {}", quote(name),
                                 info.offset, alignment));
    if (info.offset > data.size() || info.bytes > data.size() - info.offset)
      return corrupt(
          fmt::format("tensor {} ends beyond the file: {} bytes at offset {} of {}; the file is truncated",
                      quote(name), info.bytes, info.offset, data.size()));
    info.tensor.data = data.subspan(info.offset, info.bytes);
  }
  std::vector<const TensorInfo*> order;
  order.reserve(infos.size());
  for (const TensorInfo& info : infos)
    order.push_back(&info);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
      return corrupt(fmt::format("tensors {} and {} overlap", quote(order[i - 1]->tensor.name),
                                 quote(order[i]->tensor.name)));
  return {};
}

Status read_version(Reader& in, uint32_t* version) {
  std::span<const std::byte> magic;
  if (!in.take(4, "the magic", &magic).ok() || std::memcmp(magic.data(), "GGUF", 4) != 0)
    return corrupt("not a GGUF file: it does not start with \"GGUF\"");
  RETURN_IF_ERROR(in.number("the version", version));
  if (*version == 2 || *version == 3) return {};
  if ((*version & 0xFFFF) == 0 && *version != 0)
    return unsupported("a big-endian GGUF file; convert the model again for a little-endian machine");
  if (*version == 1) return unsupported("GGUF version 1 is obsolete; convert the model again");
  return unsupported(fmt::format("GGUF version {} is not known; versions 2 and 3 are", *version));
}

template <class T>
bool fits(int64_t value) {
  return value >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
         value <= static_cast<int64_t>(std::numeric_limits<T>::max());
}

// An integer or bool of any width; false for other types and for U64 beyond INT64_MAX.
bool load_int(GgufType type, const std::byte* p, int64_t* out) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      *out = load<uint8_t>(p);
      return true;
    case GgufType::kI8:
      *out = load<int8_t>(p);
      return true;
    case GgufType::kU16:
      *out = load<uint16_t>(p);
      return true;
    case GgufType::kI16:
      *out = load<int16_t>(p);
      return true;
    case GgufType::kU32:
      *out = load<uint32_t>(p);
      return true;
    case GgufType::kI32:
      *out = load<int32_t>(p);
      return true;
    case GgufType::kI64:
      *out = load<int64_t>(p);
      return true;
    case GgufType::kU64:
      *out = load<int64_t>(p);
      return *out >= 0;
    default:
      return false;
  }
}

bool load_float(GgufType type, const std::byte* p, float* out) {
  if (type == GgufType::kF32) *out = load<float>(p);
  if (type == GgufType::kF64) *out = static_cast<float>(load<double>(p));
  return type == GgufType::kF32 || type == GgufType::kF64;
}

std::string type_text(const GgufEntry& e) {
  if (e.type != GgufType::kArray) return gguf_type_name(e.type);
  return fmt::format("array of {}", gguf_type_name(e.element));
}

Status wrong_type(const std::string& label, const GgufEntry& e, const char* wanted) {
  return corrupt(fmt::format("{}: metadata {} should be {}, but is {}{}", label, quote(e.key), wanted,
                             type_text(e), e.type == GgufType::kArray ? "" : " or out of range"));
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> file, const std::string& label) {
  GgufFile out;
  out.label_ = label;
  std::vector<TensorInfo> infos;
  const Status status = [&]() -> Status {
    Reader in(file);
    RETURN_IF_ERROR(check_no_lfs_pointer(file));
    RETURN_IF_ERROR(read_version(in, &out.version_));
    uint64_t tensor_count = 0, entry_count = 0;
    RETURN_IF_ERROR(in.number("the tensor count", &tensor_count));
    RETURN_IF_ERROR(in.number("the metadata count", &entry_count));
    constexpr uint64_t kLeastEntry = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;
    if (entry_count > in.left() / kLeastEntry)
      return corrupt(fmt::format("{} metadata entries do not fit into the file", entry_count));
    if (tensor_count > in.left() / kLeastTensor)
      return corrupt(fmt::format("{} tensors do not fit into the file", tensor_count));

    for (uint64_t i = 0; i < entry_count; ++i) {
      GgufEntry entry;
      RETURN_IF_ERROR(read_entry(in, file, &entry));
      if (!out.by_key_.emplace(entry.key, out.entries_.size()).second)
        return corrupt(fmt::format("metadata key {} occurs twice", quote(entry.key)));
      out.entries_.push_back(entry);
    }
    if (const GgufEntry* e = out.find("general.alignment"); e != nullptr) {
      if (e->type != GgufType::kU32) return wrong_type(label, *e, "u32");
      out.alignment_ = load<uint32_t>(e->bytes.data());
      if (!std::has_single_bit(out.alignment_) || out.alignment_ > kMaxAlignment)
        return corrupt(fmt::format("general.alignment is {}, not a power of two up to {}", out.alignment_,
                                   kMaxAlignment));
    }

    out.metadata_ = file.first(in.at());

    std::unordered_set<std::string_view> names;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      TensorInfo info;
      RETURN_IF_ERROR(read_tensor(in, &info));
      if (!names.insert(info.tensor.name).second)
        return corrupt(fmt::format("tensor {} occurs twice", quote(info.tensor.name)));
      infos.push_back(std::move(info));
    }
    const uint64_t header = (in.at() + out.alignment_ - 1) / out.alignment_ * out.alignment_;
    if (header > file.size() && !infos.empty())
      return corrupt("truncated: the file ends before the tensor data");
    out.header_bytes_ = std::min<uint64_t>(header, file.size());
    return place(infos, file.subspan(out.header_bytes_), out.alignment_);
  }();
  if (!status.ok()) return status.with_context(label);
  out.tensors_.reserve(infos.size());
  for (TensorInfo& info : infos)
    out.tensors_.push_back(std::move(info.tensor));
  return out;
}

std::vector<std::byte> GgufFile::metadata_file() const {
  constexpr size_t kTensorCountAt = 8;
  std::vector<std::byte> file(metadata_.begin(), metadata_.end());
  std::fill_n(file.begin() + kTensorCountAt, sizeof(uint64_t), std::byte{0});
  return file;
}

const GgufEntry* GgufFile::find(std::string_view key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &entries_[it->second];
}

Result<std::optional<int64_t>> GgufFile::get_int(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<int64_t>();
  int64_t value = 0;
  if (e->type == GgufType::kBool || !load_int(e->type, e->bytes.data(), &value))
    return wrong_type(label_, *e, "an integer");
  return std::optional<int64_t>(value);
}

Result<std::optional<uint32_t>> GgufFile::get_u32(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<uint32_t>();
  int64_t value = 0;
  if (e->type == GgufType::kBool || !load_int(e->type, e->bytes.data(), &value) || !fits<uint32_t>(value))
    return wrong_type(label_, *e, "an unsigned 32-bit integer");
  return std::optional<uint32_t>(static_cast<uint32_t>(value));
}

Result<std::optional<float>> GgufFile::get_f32(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<float>();
  float value = 0;
  if (!load_float(e->type, e->bytes.data(), &value)) return wrong_type(label_, *e, "a float");
  return std::optional<float>(value);
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<bool>();
  if (e->type != GgufType::kBool) return wrong_type(label_, *e, "a bool");
  return std::optional<bool>(load<uint8_t>(e->bytes.data()) != 0);
}

Result<std::optional<std::string_view>> GgufFile::get_string(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<std::string_view>();
  if (e->type != GgufType::kString) return wrong_type(label_, *e, "a string");
  return std::optional<std::string_view>({reinterpret_cast<const char*>(e->bytes.data()), e->bytes.size()});
}

Result<std::optional<GgufStrings>> GgufFile::get_strings(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<GgufStrings>();
  if (e->type != GgufType::kArray || e->element != GgufType::kString)
    return wrong_type(label_, *e, "an array of strings");
  return std::optional<GgufStrings>(GgufStrings(e->bytes, e->count));
}

Result<std::optional<std::vector<float>>> GgufFile::get_floats(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<std::vector<float>>();
  const bool floats = e->element == GgufType::kF32 || e->element == GgufType::kF64;
  if (e->type != GgufType::kArray || !floats) return wrong_type(label_, *e, "an array of floats");
  std::vector<float> values(e->count);
  for (uint64_t i = 0; i < e->count; ++i)
    load_float(e->element, e->bytes.data() + i * fixed_size(e->element), &values[i]);
  return std::optional(std::move(values));
}

Result<std::optional<std::vector<int64_t>>> GgufFile::get_ints(std::string_view key) const {
  const GgufEntry* e = find(key);
  if (e == nullptr) return std::optional<std::vector<int64_t>>();
  int64_t ignored = 0;
  const std::byte zeros[8] = {};
  if (e->type != GgufType::kArray || !load_int(e->element, zeros, &ignored))
    return wrong_type(label_, *e, "an array of integers");
  std::vector<int64_t> values(e->count);
  for (uint64_t i = 0; i < e->count; ++i)
    if (!load_int(e->element, e->bytes.data() + i * fixed_size(e->element), &values[i]))
      return corrupt(fmt::format("{}: metadata {} holds an integer beyond 2^63", label_, quote(e->key)));
  return std::optional(std::move(values));
}

}  // namespace invar
