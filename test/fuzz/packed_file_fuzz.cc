// libFuzzer target: a file of packed weights with any damage is refused, or it opens with sections that are
// safe to read. The input is a list of edits (place: 2 bytes, value: 1 byte) of a valid file; an input of
// another length is the whole file. An edited header gets a right checksum when the first edit asks for it,
// so that what lies behind the checksum is tried as well. layers: format

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "format/packed_file.h"

namespace {

using namespace invar;

const std::vector<PackedSection>& sections() {
  static const std::vector<PackedSection> all = {{"norm", nullptr, 24, 1},
                                                 {"weight", find_packed_form("f16"), 20, 32}};
  return all;
}

std::vector<char> valid_file() {
  char folder[] = "/tmp/invar-fuzz-XXXXXX";
  if (mkdtemp(folder) == nullptr) std::abort();
  const std::string path = std::string(folder) + "/file";
  {
    auto file = PackedFile::create(path, Digest{}, sections());
    if (!file.ok()) std::abort();
    for (size_t i = 0; i < sections().size(); ++i)
      std::memset((*file)->mutable_section(i), int(i) + 1, sections()[i].bytes());
    (*file)->publish();
    if (!(*file)->wait_published().ok()) std::abort();
  }
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  std::filesystem::remove_all(folder);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<char> valid = valid_file();
  std::vector<char> bytes = valid;
  if (size % 3 != 0) {
    bytes.assign(data, data + size);
  } else {
    for (size_t i = 0; i + 3 <= size; i += 3) {
      const size_t at = data[i] | size_t(data[i + 1]) << 8;
      if (at >= bytes.size()) bytes.resize(at + 1);
      bytes[at] = char(data[i + 2]);
    }
    // 24 + 32 + 8 bytes, the directory, one checksum per section, then that of all before it.
    uint64_t directory;
    std::memcpy(&directory, bytes.data() + 56, 8);
    if (size >= 3 && data[0] % 2 == 1 && directory < 4096 - 64 - 24) {
      const size_t end = 64 + directory + 8 * sections().size();
      const uint64_t hash = hash64(std::as_bytes(std::span(bytes)).first(end));
      std::memcpy(bytes.data() + end, &hash, 8);
    }
  }
  static const int fd = memfd_create("packed", 0);
  if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    std::abort();
  const auto file = PackedFile::open("/proc/self/fd/" + std::to_string(fd), Digest{}, sections());
  if (!file.ok()) return 0;
  (void)(*file)->verify().ok();
  size_t sum = 0;
  for (size_t i = 0; i < sections().size(); ++i) {
    const std::byte* section = (*file)->section(i);
    for (size_t k = 0; k < sections()[i].bytes(); ++k)
      sum += size_t(section[k]);
  }
  volatile size_t keep = sum;
  (void)keep;
  return 0;
}
