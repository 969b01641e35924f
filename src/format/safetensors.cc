#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/quote.h"
#include "format/json_value.h"
#include "format/lfs_pointer.h"

namespace invar {
namespace {

constexpr uint64_t kMaxHeader = 32 << 20;  // 100,000 tensors need about 15 MiB
constexpr size_t kMaxDims = 8;

// A tensor's entry: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}.
Status read_entry(const std::string& name, const JsonValue& entry, std::span<const std::byte> data,
                  SafetensorsTensor* out) {
  const std::string what = "tensor " + quote(name);
  const JsonValue *dtype = entry.find("dtype"), *shape = entry.find("shape"),
                  *offsets = entry.find("data_offsets");
  const auto* type_name = dtype ? std::get_if<std::string>(&dtype->data) : nullptr;
  const auto* dims = shape ? std::get_if<JsonValue::Array>(&shape->data) : nullptr;
  const auto* ends = offsets ? std::get_if<JsonValue::Array>(&offsets->data) : nullptr;
  if (type_name == nullptr || dims == nullptr || ends == nullptr)
    return corrupt(what + " needs dtype, shape and data_offsets");
  out->name = name;
  out->type = weight_type_by_name(*type_name);
  if (out->type == nullptr || out->type->block != 1)
    return unsupported(fmt::format("{} has unknown dtype {}", what, quote(*type_name)));

  if (dims->size() > kMaxDims) return corrupt(fmt::format("{} has {} dimensions", what, dims->size()));
  uint64_t bytes = static_cast<uint64_t>(out->type->block_bytes);
  for (const JsonValue& dim : *dims) {
    const auto* n = std::get_if<int64_t>(&dim.data);
    if (n == nullptr || *n < 0)
      return corrupt(fmt::format("the shape of {} holds something else than sizes", what));
    if (*n != 0 && bytes > std::numeric_limits<int64_t>::max() / static_cast<uint64_t>(*n))
      return corrupt(fmt::format("the shape of {} overflows", what));
    bytes *= static_cast<uint64_t>(*n);
    out->shape.push_back(*n);
  }

  const int64_t* begin = ends->size() == 2 ? std::get_if<int64_t>(&(*ends)[0].data) : nullptr;
  const int64_t* end = ends->size() == 2 ? std::get_if<int64_t>(&(*ends)[1].data) : nullptr;
  if (begin == nullptr || end == nullptr || *begin < 0 || *end < *begin)
    return corrupt(fmt::format("the data_offsets of {} are not two ascending offsets", what));
  if (static_cast<uint64_t>(*end) > data.size())
    return corrupt(
        fmt::format("{} ends beyond the file: at {} of {}; the file is truncated", what, *end, data.size()));
  if (static_cast<uint64_t>(*end - *begin) != bytes)
    return corrupt(
        fmt::format("{} has {} bytes, but its dtype and shape need {}", what, *end - *begin, bytes));
  out->data = data.subspan(static_cast<size_t>(*begin), static_cast<size_t>(*end - *begin));
  return {};
}

Status check_overlaps(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<const SafetensorsTensor*> order;
  for (const SafetensorsTensor& t : tensors)
    if (!t.data.empty()) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->data.data() < b->data.data(); });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->data.data() < order[i - 1]->data.data() + order[i - 1]->data.size())
      return corrupt(
          fmt::format("tensors {} and {} overlap", quote(order[i - 1]->name), quote(order[i]->name)));
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> file, const std::string& label) {
  SafetensorsFile out;
  const Status status = [&]() -> Status {
    uint64_t length = 0;
    if (file.size() < 8) return corrupt("not a safetensors file: shorter than 8 bytes");
    std::memcpy(&length, file.data(), 8);
    RETURN_IF_ERROR(check_no_lfs_pointer(file));
    if (length > file.size() - 8)
      return corrupt(fmt::format("the header has {} bytes, {} are there; truncated or no safetensors file",
                                 length, file.size() - 8));
    if (length > kMaxHeader)
      return corrupt(fmt::format("the header has {} bytes, more than {}", length, kMaxHeader));
    out.header_bytes_ = 8 + length;
    const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
    ASSIGN_OR_RETURN(const JsonValue header,
                     parse_json(text, {.bytes = kMaxHeader, .values = 2'000'000, .depth = 4}));
    const auto* object = std::get_if<JsonValue::Object>(&header.data);
    if (object == nullptr) return corrupt("the header is no JSON object");
    for (const auto& [name, entry] : *object) {
      if (name == "__metadata__") continue;
      SafetensorsTensor tensor;
      RETURN_IF_ERROR(read_entry(name, entry, file.subspan(out.header_bytes_), &tensor));
      out.tensors_.push_back(std::move(tensor));
    }
    return check_overlaps(out.tensors_);
  }();
  if (!status.ok()) return status.with_context(label);
  return out;
}

}  // namespace invar
