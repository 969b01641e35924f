#include "cli/convert/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/temporary_files.h"

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

Status GgufWriter::failed(const char* what) const {
  const int error = errno;
  const bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
  return {full ? Code::kResourceExhausted : Code::kIo,
          fmt::format("{}: cannot {}: {}{}", path_, what, std::strerror(error),
                      full ? "; free some space or choose another folder" : "")};
}

GgufWriter::~GgufWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
  forget_temporary(temporary_);
}

void GgufWriter::add_entry(const GgufEntry& entry) {
  CHECK(file_ == nullptr);
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

void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  add_entry({.key = key, .type = GgufType::kU32, .bytes = std::as_bytes(std::span(&value, 1))});
}

void GgufWriter::add_f32(std::string_view key, float value) {
  add_entry({.key = key, .type = GgufType::kF32, .bytes = std::as_bytes(std::span(&value, 1))});
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  const std::byte byte{value};
  add_entry({.key = key, .type = GgufType::kBool, .bytes = std::span(&byte, 1)});
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  add_entry({.key = key, .type = GgufType::kString, .bytes = std::as_bytes(std::span(value))});
}

void GgufWriter::add_array(std::string_view key, GgufType element, uint64_t count,
                           std::span<const std::byte> bytes) {
  add_entry({.key = key, .type = GgufType::kArray, .element = element, .count = count, .bytes = bytes});
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  std::string bytes;
  for (const std::string& value : values)
    put_string(bytes, value);
  add_array(key, GgufType::kString, values.size(), std::as_bytes(std::span(bytes)));
}

void GgufWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  add_array(key, GgufType::kI32, values.size(), std::as_bytes(values));
}

void GgufWriter::add_f32s(std::string_view key, std::span<const float> values) {
  add_array(key, GgufType::kF32, values.size(), std::as_bytes(values));
}

void GgufWriter::add_bools(std::string_view key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  add_array(key, GgufType::kBool, bytes.size(), std::as_bytes(std::span(bytes)));
}

void GgufWriter::add_tensor(std::string_view name, const WeightType& type, std::span<const int64_t> shape,
                            uint64_t bytes) {
  CHECK(file_ == nullptr && type.ggml_type >= 0);
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

Status GgufWriter::begin() {
  struct stat info{};
  // The finished file is renamed to `path`, which would replace a device or a link's name by a plain file.
  if (::lstat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalid_argument(fmt::format("{}: exists and is not a regular file; name another file", path_));
  temporary_ = fmt::format("{}.{}.tmp", path_, ::getpid());
  const int fd = open_temporary(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return failed("create");
  file_ = ::fdopen(fd, "wb");
  CHECK(file_ != nullptr);
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
  RETURN_IF_ERROR(write(head));
  data_start_ = (position_ + alignment_ - 1) / alignment_ * alignment_;
  return pad_to(data_start_);
}

Status GgufWriter::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failed("write");
  position_ += bytes.size();
  return {};
}

Status GgufWriter::pad_to(uint64_t position) {
  CHECK(position >= position_);
  return write(std::string(position - position_, '\0'));
}

Status GgufWriter::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    while (tensor_ < tensors_.size() && in_tensor_ == tensors_[tensor_].bytes)
      ++tensor_, in_tensor_ = 0;
    CHECK(tensor_ < tensors_.size());
    const Tensor& t = tensors_[tensor_];
    if (in_tensor_ == 0) RETURN_IF_ERROR(pad_to(data_start_ + t.offset));
    const size_t n = std::min<uint64_t>(data.size(), t.bytes - in_tensor_);
    RETURN_IF_ERROR(write({reinterpret_cast<const char*>(data.data()), n}));
    in_tensor_ += n;
    data = data.subspan(n);
  }
  return {};
}

uint64_t GgufWriter::file_bytes() const {
  return data_start_ + (end_ + alignment_ - 1) / alignment_ * alignment_;
}

Result<std::string> GgufWriter::preview() {
  CHECK(file_ != nullptr);
  if (std::fflush(file_) != 0 || ::ftruncate(::fileno(file_), off_t(file_bytes())) != 0)
    return failed("write");
  return temporary_;
}

Status GgufWriter::finish() {
  CHECK(file_ != nullptr);
  for (; tensor_ < tensors_.size(); ++tensor_, in_tensor_ = 0)
    CHECK(in_tensor_ == tensors_[tensor_].bytes);  // those behind the last byte are empty
  RETURN_IF_ERROR(pad_to(file_bytes()));
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failed("write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename to");
  forget_temporary(temporary_);
  std::fclose(std::exchange(file_, nullptr));
  return {};
}

uint64_t GgufWriter::bytes() const {
  return position_;
}

}  // namespace invar
