#pragma once
// For tests: writes small model files byte by byte, right or deliberately wrong, and temporary folders.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
    return *this;
  }
  Bytes& text(std::string_view s) {  // without a length
    const auto* p = reinterpret_cast<const std::byte*>(s.data());
    bytes_.insert(bytes_.end(), p, p + s.size());
    return *this;
  }
  Bytes& string(std::string_view s) { return put<uint64_t>(s.size()).text(s); }
  Bytes& append(const Bytes& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    return *this;
  }
  Bytes& pad(size_t alignment) {
    while (bytes_.size() % alignment != 0)
      bytes_.push_back(std::byte{0});
    return *this;
  }
  Bytes& fill(size_t n, uint8_t value) {
    bytes_.insert(bytes_.end(), n, std::byte{value});
    return *this;
  }
  std::vector<std::byte>& get() { return bytes_; }
  const std::vector<std::byte>& get() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A GGUF file in the making: add keys and tensors, then build().
class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  GgufWriter& key(std::string_view name, uint32_t type, const Bytes& value) {
    keys_.string(name).put(type).append(value);
    key_count_++;
    return *this;
  }
  GgufWriter& u32(std::string_view name, uint32_t v) { return key(name, 4, Bytes().put(v)); }
  GgufWriter& f32(std::string_view name, float v) { return key(name, 6, Bytes().put(v)); }
  GgufWriter& boolean(std::string_view name, bool v) { return key(name, 7, Bytes().put<uint8_t>(v)); }
  GgufWriter& string(std::string_view name, std::string_view v) { return key(name, 8, Bytes().string(v)); }
  GgufWriter& array(std::string_view name, uint32_t element, uint64_t count, const Bytes& elements) {
    return key(name, 9, Bytes().put(element).put(count).append(elements));
  }
  // dims as the file has them: the row length first. The offset is the next free one.
  GgufWriter& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, const Bytes& data) {
    data_.pad(alignment);
    return tensor_at(name, std::move(dims), type, data_.get().size(), data);
  }
  GgufWriter& tensor_at(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset,
                        const Bytes& data = {}) {
    tensors_.string(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims)
      tensors_.put(d);
    tensors_.put(type).put(offset);
    data_.append(data);
    tensor_count_++;
    return *this;
  }
  size_t directory_bytes() const { return 24 + keys_.get().size() + tensors_.get().size(); }
  std::vector<std::byte> build() const {
    Bytes out;
    out.text("GGUF").put(version).put(tensor_count_).put(key_count_).append(keys_).append(tensors_);
    if (tensor_count_ > 0) out.pad(alignment).append(data_);
    return out.get();
  }

 private:
  Bytes keys_, tensors_, data_;
  uint64_t key_count_ = 0, tensor_count_ = 0;
};

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "invar-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }

 private:
  std::string path_;
};

// Of this thread, so that a busy machine does not count.
inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
inline void write_file(const std::string& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}
inline std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

}  // namespace invar
