#pragma once
// Writes a packed model (format/packed_source.h): one file that is served without the model it was made from,
// with its digest, its identity and the bits of its answers.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/temporary_files.h"
#include "models/model.h"

namespace invar {

// The size of the finished file. Of the options, the cache is used for the digest alone, and rope not at
// all: positions are the business of whoever loads the file. A file of that name is replaced, or kept, when
// the new one is safe on disk. change: what was done to the tensors of the source's files before, which makes
// the digest another one; "": nothing.
Result<uint64_t> write_packed_model(const ModelSource& source, const std::string& path,
                                    const LoadOptions& options, const std::string& change = "",
                                    Existing existing = Existing::kReplaced);

}  // namespace invar
