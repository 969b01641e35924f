#pragma once
// A packed model: one file with everything that a model needs, made from a model of any format and served
// without it (docs/formats.md draws it). In front lies the record: name, digest and identity of the origin,
// its metadata or side files, its tensor table. Behind it lies a packed file as the cache has them.
// open_packed_source() is the ModelSource of such a file, made by ModelSource::open().

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/model_source.h"

namespace invar {

inline constexpr const char* kPackedSuffix = ".packed";
// Raised whenever the record changes its meaning.
inline constexpr uint32_t kPackedModelVersion = 1;

// A packed model, or the copy of packed weights in the cache, which needs its source and is refused with a
// hint.
bool begins_packed(const std::string& path);
Result<std::unique_ptr<ModelSource>> open_packed_source(const std::string& path);

// What lies in front of the packed file: a multiple of its alignment. digest: model_digest.h.
// with_data: stored names of the tensors whose bytes are needed besides the packed ones.
Result<std::vector<std::byte>> packed_record(const ModelSource& source, const std::string& digest,
                                             std::span<const std::string> with_data);

}  // namespace invar
