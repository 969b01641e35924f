#pragma once
// The digest of a model for receipts: SHA-256 of what its answers depend on. Of a GGUF file: of the file. Of
// a Hugging Face folder: of lines "HEX  NAME\n", as sha256sum prints them, for the files that there are, in
// the order of ModelSource::files(). Of a packed model: that of its origin, as it says. Reading many
// gigabytes takes seconds, so digests of large files are kept in the cache under their identity.

#include <string>

#include "base/status.h"
#include "format/model_source.h"

namespace invar {

// cache_dir: the digests lie in cache_dir/digests; "": nothing is kept.
Result<std::string> model_digest(const ModelSource& source, const std::string& cache_dir);

// That of a model that was made of one with this digest: SHA-256 of the line "HEX  CHANGE\n".
std::string changed_digest(const std::string& digest, const std::string& change);

}  // namespace invar
