#include "models/packed_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "format/model_digest.h"
#include "format/packed_source.h"
#include "format/packed_weights.h"
#include "models/load_plan.h"

namespace invar {

Result<uint64_t> write_packed_model(const ModelSource& source, const std::string& path,
                                    const LoadOptions& options, const std::string& change,
                                    Existing existing) {
  if (source.packed() != nullptr)
    return unsupported(fmt::format("{}: is packed already; copy the file", source.path()));
  ASSIGN_OR_RETURN(const LoadPlan plan, plan_load(source));
  ASSIGN_OR_RETURN(std::string digest, model_digest(source, options.cache_dir));
  if (!change.empty()) digest = changed_digest(digest, change);
  ASSIGN_OR_RETURN(const std::vector<std::byte> record, packed_record(source, digest, plan.audit.folded));
  std::error_code ec;
  const std::string full = std::filesystem::absolute(path, ec).string();
  if (ec) return io_error(fmt::format("{}: {}", path, ec.message()));
  return PackedWeights::write(
      source, plan.entries, record, full,
      {.threads = options.threads, .progress = options.progress, .existing = existing});
}

}  // namespace invar
