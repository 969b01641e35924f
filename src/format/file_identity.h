#pragma once
// Identity of a file for cache keys: hex digest of size, modification time, the first bytes in full and
// samples of the rest. Reads at most a few MiB, whatever the size of the file.

#include <string>

#include "base/mapped_file.h"

namespace invar {

std::string file_identity(const MappedFile& file, size_t header_bytes);

}  // namespace invar
