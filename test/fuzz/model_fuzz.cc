// libFuzzer target: any model on disk ends in an error or in a graph whose weights can be read. The input: a
// GGUF file, or config.json, a zero byte and model.safetensors. layers: models

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "models/model.h"

namespace {

using namespace invar;

// Two files in memory and a folder that shows them under their names.
struct Disk {
  int config = memfd_create("config", 0), weights = memfd_create("weights", 0);
  std::string folder;

  Disk() {
    char name[] = "/tmp/invar-fuzz-XXXXXX";
    CHECK(mkdtemp(name) != nullptr && config >= 0 && weights >= 0);
    folder = name;
    CHECK(symlink(path_of(config).c_str(), (folder + "/config.json").c_str()) == 0);
    CHECK(symlink(path_of(weights).c_str(), (folder + "/model.safetensors").c_str()) == 0);
  }
  ~Disk() {
    unlink((folder + "/config.json").c_str());
    unlink((folder + "/model.safetensors").c_str());
    rmdir(folder.c_str());
  }
  static std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }
  static void fill(int fd, std::string_view bytes) {
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()));
  }
};

size_t sum_of(const Model& model) {
  size_t sum = 0;
  const Graph& graph = model.graph();
  CHECK(graph.validate().ok());
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    if (graph.weights[i].kind == Weight::Kind::kVector) {
      CHECK(int64_t(model.weights().vectors[i].size()) == graph.weights[i].rows);
      for (const std::byte b : std::as_bytes(model.weights().vectors[i]))
        sum += size_t(b);
    } else {
      const PackedMatrix& m = model.weights().matrices[i];
      CHECK(m.rows == graph.weights[i].rows && m.cols == graph.weights[i].cols);
      for (size_t k = 0; k < m.bytes(); ++k)
        sum += size_t(m.data[k]);
    }
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Disk disk;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const bool gguf = all.starts_with("GGUF");
  const size_t cut = gguf ? all.npos : all.find('\0');
  if (!gguf && cut == all.npos) return 0;
  Disk::fill(disk.weights, gguf ? all : all.substr(cut + 1));
  if (!gguf) Disk::fill(disk.config, all.substr(0, cut));
  const auto model = Model::load(gguf ? Disk::path_of(disk.weights) : disk.folder,
                                 {.cache_dir = "", .threads = 1, .progress = false});
  if (!model.ok()) {
    CHECK(model.status().code() != Code::kInternal);
    return 0;
  }
  volatile size_t keep = sum_of(**model);
  (void)keep;
  return 0;
}
