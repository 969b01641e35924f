#include "base/hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace invar {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* data, size_t size) { CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1); }
  Digest finish() {
    Digest digest;
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1 && size == digest.size());
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Odd constants with well spread bits: the fractional parts of the square roots of 2, 3, 5, 7, made odd.
constexpr uint64_t kMix[4] = {0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1};

uint64_t load_le64(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// For a fixed word a bijection of the lane and the other way round, so one changed word always changes the
// lane.
uint64_t absorb(uint64_t lane, uint64_t word, uint64_t multiplier) {
  return std::rotl(lane ^ (word * multiplier), 29) * kMix[0] + multiplier;
}

uint64_t avalanche(uint64_t x) {
  x = (x ^ (x >> 32)) * kMix[1];
  x = (x ^ (x >> 29)) * kMix[3];
  return x ^ (x >> 32);
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.finish();
}

Digest sha256(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

Result<Digest> sha256_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe there must not hang us
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT) return not_found(fmt::format("{}: no such file", path));
    return io_error(fmt::format("{}: cannot open: {}", path, std::strerror(error)));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return invalid_argument(fmt::format("{}: is no regular file; one is needed", path));
  }
  Sha256 hash;
  std::vector<std::byte> chunk(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(fd);
      return io_error(fmt::format("{}: cannot read: {}", path, std::strerror(error)));
    }
    if (got == 0) break;
    hash.add(chunk.data(), static_cast<size_t>(got));
  }
  ::close(fd);
  return hash.finish();
}

std::string hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  uint64_t lanes[4] = {seed ^ kMix[0], seed + kMix[1], seed ^ kMix[2], seed + kMix[3]};
  for (; left >= 32; p += 32, left -= 32) {
    for (int i = 0; i < 4; ++i)
      lanes[i] = absorb(lanes[i], load_le64(p + 8 * i), kMix[i]);
  }
  std::byte tail[32] = {};
  if (left != 0) {
    std::memcpy(tail, p, left);
    for (int i = 0; i < 4; ++i)
      lanes[i] = absorb(lanes[i], load_le64(tail + 8 * i), kMix[i]);
  }
  uint64_t h = avalanche(seed ^ bytes.size());  // the size tells zero padding from zero bytes
  for (const uint64_t lane : lanes)
    h = avalanche(h ^ lane) + kMix[2];
  return avalanche(h);
}

}  // namespace invar
