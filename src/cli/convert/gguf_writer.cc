#include "cli/convert/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t(text.size()));
  out += text;
}

}  // namespace

void GgufFileWriter::add_entry(const GgufEntry& entry) {
  CHECK(!file_.is_open());
  Entry e;
  e.key = entry.key;
  put(e.value, uint32_t(entry.type));
  if (entry.type == GgufType::kArray) {
    put(e.value, uint32_t(entry.element));
    put(e.value, entry.count);
  } else if (entry.type == GgufType::kString) {
    put(e.value, uint64_t(entry.bytes.size()));
  }
  e.value.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
  const auto same =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& o) { return o.key == e.key; });
  if (same != entries_.end())
    *same = std::move(e);
  else
    entries_.push_back(std::move(e));
}

void GgufFileWriter::add_u32(std::string_view key, uint32_t value) {
  add_entry({.key = key, .type = GgufType::kU32, .bytes = std::as_bytes(std::span(&value, 1))});
}

void GgufFileWriter::add_f32(std::string_view key, float value) {
  add_entry({.key = key, .type = GgufType::kF32, .bytes = std::as_bytes(std::span(&value, 1))});
}

void GgufFileWriter::add_bool(std::string_view key, bool value) {
  const std::byte byte{value};
  add_entry({.key = key, .type = GgufType::kBool, .bytes = std::span(&byte, 1)});
}

void GgufFileWriter::add_string(std::string_view key, std::string_view value) {
  add_entry({.key = key, .type = GgufType::kString, .bytes = std::as_bytes(std::span(value))});
}

void GgufFileWriter::add_array(std::string_view key, GgufType element, uint64_t count,
                               std::span<const std::byte> bytes) {
  add_entry({.key = key, .type = GgufType::kArray, .element = element, .count = count, .bytes = bytes});
}

void GgufFileWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  std::string bytes;
  for (const std::string& value : values)
    put_string(bytes, value);
  add_array(key, GgufType::kString, values.size(), std::as_bytes(std::span(bytes)));
}

void GgufFileWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  add_array(key, GgufType::kI32, values.size(), std::as_bytes(values));
}

void GgufFileWriter::add_f32s(std::string_view key, std::span<const float> values) {
  add_array(key, GgufType::kF32, values.size(), std::as_bytes(values));
}

void GgufFileWriter::add_u8s(std::string_view key, std::string_view bytes) {
  add_array(key, GgufType::kU8, bytes.size(), std::as_bytes(std::span(bytes)));
}

void GgufFileWriter::add_bools(std::string_view key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  add_array(key, GgufType::kBool, bytes.size(), std::as_bytes(std::span(bytes)));
}

void GgufFileWriter::add_tensor(std::string_view name, const WeightType& type, std::span<const int64_t> shape,
                                uint64_t bytes) {
  CHECK(!file_.is_open() && type.ggml_type >= 0);
  Tensor t;
  put_string(t.info, name);
  put(t.info, uint32_t(shape.size()));
  for (size_t i = shape.size(); i-- > 0;)  // innermost first
    put(t.info, uint64_t(shape[i]));
  put(t.info, uint32_t(type.ggml_type));
  t.bytes = bytes;
  t.offset = (end_ + alignment_ - 1) / alignment_ * alignment_;
  end_ = t.offset + bytes;
  tensors_.push_back(std::move(t));
}

Status GgufFileWriter::begin() {
  RETURN_IF_ERROR(file_.open());
  std::string head = "GGUF";
  put(head, uint32_t{3});
  put(head, uint64_t(tensors_.size()));
  put(head, uint64_t(entries_.size()));
  for (const Entry& e : entries_) {
    put_string(head, e.key);
    head += e.value;
  }
  for (const Tensor& t : tensors_) {
    head += t.info;
    put(head, t.offset);
  }
  RETURN_IF_ERROR(file_.write(head));
  data_start_ = (file_.bytes() + alignment_ - 1) / alignment_ * alignment_;
  return pad_to(data_start_);
}

Status GgufFileWriter::pad_to(uint64_t position) {
  CHECK(position >= file_.bytes());
  return file_.write(std::string(position - file_.bytes(), '\0'));
}

Status GgufFileWriter::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    while (tensor_ < tensors_.size() && in_tensor_ == tensors_[tensor_].bytes)
      ++tensor_, in_tensor_ = 0;
    CHECK(tensor_ < tensors_.size());
    const Tensor& t = tensors_[tensor_];
    if (in_tensor_ == 0) RETURN_IF_ERROR(pad_to(data_start_ + t.offset));
    const size_t n = std::min<uint64_t>(data.size(), t.bytes - in_tensor_);
    RETURN_IF_ERROR(file_.write(data.first(n)));
    in_tensor_ += n;
    data = data.subspan(n);
  }
  return {};
}

uint64_t GgufFileWriter::file_bytes() const {
  return data_start_ + (end_ + alignment_ - 1) / alignment_ * alignment_;
}

Result<std::string> GgufFileWriter::preview() {
  return file_.preview(file_bytes());
}

Status GgufFileWriter::finish() {
  for (; tensor_ < tensors_.size(); ++tensor_, in_tensor_ = 0)
    CHECK(in_tensor_ == tensors_[tensor_].bytes);  // those behind the last byte are empty
  RETURN_IF_ERROR(pad_to(file_bytes()));
  return file_.finish();
}

}  // namespace invar
