#include "cli/convert/quantized_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/convert/encode_rows.h"
#include "cli/convert/weight_rows.h"
#include "format/source_planes.h"
#include "models/load_plan.h"

namespace invar {
namespace {

// Raised whenever the choice of types or an encoder gives other bytes: digests of packed models tell it.
constexpr int kQuantizationVersion = 1;
constexpr uint64_t kPartAlignment = 64;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

// Whether a reader makes the same graph of the new types; that of a stack's layout depends on them.
Status check_graph(const ModelSource& result, const LoadPlan& plan, const NewTypes& replaced) {
  Graph wanted = plan.graph;
  for (size_t i = 0; i < wanted.weights.size(); ++i)
    if (const auto to = replaced.find(plan.audit.tensors[i]); to != replaced.end())
      wanted.weights[i].transposed = wanted.weights[i].transposed && !to->second.matrix.transposed;
  const auto read = plan_load(result);
  if (read.ok() && read->graph == wanted) return {};
  const std::string why =
      read.ok() ? result.path() + ": a reader would have other weights" : read.status().message();
  return unsupported(why + "; how its experts lie goes with their type: try another --type");
}

}  // namespace

struct QuantizedSource::Job {
  size_t index;  // of the tensor
  StoredMatrix from;
  std::span<std::byte> codes, scales, biases;  // the latter two of MLX-4
};

QuantizedSource::QuantizedSource(const ModelSource& source, const QuantizeOptions& options)
    : source_(source),
      options_(options),
      change_(fmt::format("quantized to {}, rules {}", options.type != nullptr ? options.type->type : kMlx4,
                          kQuantizationVersion)) {}

std::string QuantizedSource::identity() const {
  return hex(sha256(source_.identity() + "\n" + change_));
}

Result<std::unique_ptr<QuantizedSource>> QuantizedSource::make(const ModelSource& source,
                                                               const std::string& target,
                                                               const QuantizeOptions& options) {
  CHECK(source.packed() == nullptr);
  ASSIGN_OR_RETURN(const LoadPlan plan, plan_load(source));
  const NewTypes replaced = new_types(source, plan, options);
  std::unique_ptr<QuantizedSource> made(new QuantizedSource(source, options));
  uint64_t bytes = 0;
  for (const auto& [t, to] : replaced)
    bytes += made->room_for(element_count(t->shape), *to.type);
  ASSIGN_OR_RETURN(made->scratch_, ScratchMap::create(target, bytes));

  std::vector<SourceTensor> tensors(source.tensors().begin(), source.tensors().end());
  std::vector<Job> jobs;
  std::span<std::byte> left = made->scratch_.bytes();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SourceTensor& before = source.tensors()[i];
    const auto to = replaced.find(&before);
    if (to != replaced.end()) {
      jobs.push_back({.index = i, .from = to->second.matrix});
      made->replace(tensors[i], *to->second.type, left, &jobs.back());
    }
    Conversion& c = made->conversion_;
    c.bytes_before += source_bytes(before);
    c.bytes_after += source_bytes(tensors[i]);
    c.kept += to == replaced.end();
    ++c.tensors;
    ++c.types[to != replaced.end() && options.type == nullptr ? kMlx4 : tensors[i].type->name];
  }
  RETURN_IF_ERROR(made->set_tensors(std::move(tensors)));
  RETURN_IF_ERROR(check_graph(*made, plan, replaced));
  RETURN_IF_ERROR(made->encode(jobs));
  return made;
}

uint64_t QuantizedSource::scale_bytes(int64_t elements) const {
  return options_.type == nullptr ? uint64_t(elements / kMlx4Group) * 2 : 0;
}
uint64_t QuantizedSource::room_for(int64_t elements, const WeightType& type) const {
  return aligned(coded_bytes(type, elements)) + 2 * aligned(scale_bytes(elements));
}

void QuantizedSource::replace(SourceTensor& t, const WeightType& type, std::span<std::byte>& left, Job* job) {
  const auto take = [&](uint64_t bytes) {
    const std::span<std::byte> part = left.first(bytes);
    left = left.subspan(aligned(bytes));
    return part;
  };
  const int64_t elements = element_count(t.shape);
  job->codes = take(coded_bytes(type, elements));
  job->scales = take(scale_bytes(elements));
  job->biases = take(scale_bytes(elements));
  t.type = &type;
  t.data = job->codes;
  t.planes = nullptr;
  if (job->from.transposed) std::swap(t.shape[t.shape.size() - 2], t.shape.back());
  if (options_.type != nullptr) return;
  SourcePlanes planes;
  planes.data = job->codes;
  planes.scales = job->scales;
  planes.offsets = job->biases;
  planes.cols = job->from.cols;
  planes.rows = elements / planes.cols;
  planes.group = kMlx4Group;
  t.planes = std::make_shared<const SourcePlanes>(std::move(planes));
}

Status QuantizedSource::encode(const std::vector<Job>& jobs) const {
  int64_t work = 0;
  for (const Job& job : jobs)
    work += element_count(tensors()[job.index].shape);
  ThreadPool pool({options_.threads});
  Progress progress("quantizing", work, Progress::Unit::kItems);
  for (const Job& job : jobs) {
    const SourceTensor &from = source_.tensors()[job.index], &to = tensors()[job.index];
    const int64_t elements = element_count(to.shape);
    const auto read = [&](int64_t row, float* out) { read_row(job.from, row, out); };
    const RowsToEncode rows{from.stored_name, 0, elements / job.from.cols, job.from.cols, read};
    RETURN_IF_ERROR(options_.type != nullptr
                        ? encode_rows(rows, *to.type, pool, job.codes.data())
                        : encode_affine4_rows(rows, kMlx4Group, affine_scale_dtype(*from.type), pool,
                                              {job.codes.data(), job.scales.data(), job.biases.data()}));
    source_.drop_tensor_pages(from.data);
    for (const auto part : {job.codes, job.scales, job.biases})
      scratch_.drop(part);
    progress.advance(elements);
  }
  return {};
}

}  // namespace invar
