// A model in a Hugging Face folder as a GGUF file.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "cli/convert/convert.h"
#include "cli/convert/gguf_metadata.h"
#include "cli/convert/gguf_plan.h"
#include "cli/convert/gguf_tokenizer.h"
#include "cli/convert/gguf_writer.h"
#include "cli/convert/weight_rows.h"
#include "format/source_planes.h"

namespace invar {
namespace {

constexpr int64_t kTileElements = 1 << 15, kSlabElements = 1 << 23;

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape)
    n *= d;
  return n;
}

const WeightType& type_of(const PlannedTensor& t, const BlockEncoder* wanted) {
  if (t.is_vector) return *weight_type_by_name("F32");
  const std::string name = t.name.ends_with(".weight") ? t.name : t.name + ".weight";
  return converted_type(
      {.gguf_name = name, .shape = t.shape, .type = *t.natural, .bits = bits_per_weight(*t.natural)}, wanted);
}

class TensorWriter {
 public:
  TensorWriter(const GgufPlan& plan, GgufFileWriter& writer, ThreadPool& pool, Progress& progress)
      : plan_(plan), writer_(writer), pool_(pool), progress_(progress) {}

  Status write(const PlannedTensor& t, const WeightType& type) {
    // A vector's numbers are rows of one column.
    const bool by_rows =
        plan_.to.weights[static_cast<size_t>(t.pieces[0].weight)].kind == Weight::Kind::kMatrix;
    const int64_t cols = by_rows ? t.shape.back() : 1, rows = elements_of(t.shape) / cols;
    const int64_t tile = std::max<int64_t>(1, kTileElements / cols),
                  slab = std::max(tile, kSlabElements / cols);
    const auto row_bytes = static_cast<size_t>(cols / type.block * type.block_bytes);
    std::vector<std::byte> bytes;
    for (int64_t begin = 0; begin < rows; begin += slab) {
      const int64_t end = std::min(rows, begin + slab);
      bytes.resize(static_cast<size_t>(end - begin) * row_bytes);
      infinite_ = too_large_ = false;
      pool_.run((end - begin + tile - 1) / tile, [&](int64_t i, int) {
        std::vector<float> numbers(static_cast<size_t>(cols));
        for (int64_t row = begin + i * tile; row < std::min(end, begin + (i + 1) * tile); ++row)
          encode(t, type, row, numbers, bytes.data() + static_cast<size_t>(row - begin) * row_bytes);
      });
      if (infinite_) return corrupt(fmt::format("tensor {}: holds NaN or infinity", quote(t.name)));
      if (too_large_)
        return unsupported(
            fmt::format("tensor {}: holds values that {} cannot; try --type BF16", quote(t.name), type.name));
      RETURN_IF_ERROR(writer_.append(bytes));
      progress_.advance((end - begin) * cols);
    }
    return {};
  }

 private:
  void encode(const PlannedTensor& t, const WeightType& type, int64_t row, std::vector<float>& numbers,
              std::byte* out) {
    const auto piece =
        std::prev(std::upper_bound(t.pieces.begin(), t.pieces.end(), row,
                                   [](int64_t r, const PlannedPiece& p) { return r < p.first_row; }));
    const int64_t in_piece = row - piece->first_row;
    const auto i = static_cast<size_t>(piece->weight);
    const Weight& w = plan_.from.weights[i];
    const SourceTensor& source = *plan_.audit.tensors[i];
    if (&type == source.type && source.planes == nullptr && !w.transposed && !w.add_one) {
      const auto n = static_cast<size_t>(w.cols / type.block * type.block_bytes);
      const int64_t at = stored_row(w, plan_.channel(piece->weight, in_piece));
      std::memcpy(out, source.data.data() + static_cast<size_t>(at) * n, n);
    } else if (source.planes != nullptr && type.name == std::string_view("MXFP4")) {
      copy_mxfp4_row(*source.planes, *source.type, stored_row(w, plan_.channel(piece->weight, in_piece)),
                     out);
    } else {
      plan_.read_row(piece->weight, in_piece, numbers.data());
      if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); }))
        infinite_ = true;
      else if (!find_encoder(type.name)->encode(numbers.data(), w.cols, out))
        too_large_ = true;
    }
  }

  const GgufPlan& plan_;
  GgufFileWriter& writer_;
  ThreadPool& pool_;
  Progress& progress_;
  std::atomic<bool> infinite_{false}, too_large_{false};
};

// general.file_type of files whose matrices are mostly of this type.
std::optional<int32_t> file_type(const GgufPlan& plan, const BlockEncoder* wanted) {
  if (wanted != nullptr) return wanted->file_type;
  for (const PlannedTensor& t : plan.tensors)
    if (const BlockEncoder* e = t.is_vector ? nullptr : find_encoder(t.natural->name); e != nullptr)
      return e->file_type;
  return std::nullopt;
}

Status append_factors(const GgufPlan& plan, GgufFileWriter& writer) {
  for (const PlannedFactors& f : plan.factors)
    RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(f.values))));
  return {};
}

// What our reader makes of the file's beginning; "" if it is the model, else the first thing that is not.
Result<std::string> difference(const GgufPlan& plan, GgufFileWriter& writer) {
  ASSIGN_OR_RETURN(const std::string path, writer.preview());
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> written, ModelSource::open(path));
  const auto config = plan.family->parse(*written);
  if (!config.ok()) {
    std::string refusal = config.status().message();
    if (refusal.starts_with(path + ": ")) refusal.erase(0, path.size() + 2);
    return "a reader says: " + refusal;
  }
  ASSIGN_OR_RETURN(const Graph graph, plan.family->build(*config));
  const Graph& wanted = plan.to;
  const std::string other = "a reader would have other ";
  if (graph.kv_groups != wanted.kv_groups) return other + "windows or shapes of its layers";
  if (graph.ropes != wanted.ropes) return other + "rotary frequencies";
  for (size_t i = 0; i < std::min(graph.nodes.size(), wanted.nodes.size()); ++i)
    if (!(graph.nodes[i] == wanted.nodes[i])) return other + "mathematics at " + wanted.nodes[i].site;
  if (!(graph == wanted)) return other + "weights";
  RETURN_IF_ERROR(audit_tensors(*written, *config, graph).status());
  return std::string();
}

}  // namespace

Result<Conversion> convert_folder(const ModelSource& source, const std::string& path,
                                  const ConvertOptions& options) {
  ASSIGN_OR_RETURN(const GgufPlan plan, plan_gguf(source));
  ASSIGN_OR_RETURN(const GgufTokenizer tokenizer, gguf_tokenizer(source, plan.config.vocab));
  Conversion c;
  int64_t work = 0;
  std::vector<const WeightType*> types;
  for (const PlannedTensor& t : plan.tensors) {
    types.push_back(&type_of(t, options.type));
    work += elements_of(t.shape);
    c.kept += types.back() == t.natural ? 1 : 0;
    const WeightType& stored = *plan.audit.tensors[size_t(t.pieces.front().weight)]->type;
    c.widened += stored.ggml_type < 0 && types.back()->name == std::string_view("F32");
    ++c.types[types.back()->name];
    ++c.tensors;
    c.bytes_after += uint64_t(elements_of(t.shape) / types.back()->block * types.back()->block_bytes);
  }
  for (const SourceTensor& t : source.tensors())
    c.bytes_before += source_bytes(t);

  std::optional<GgufFileWriter> writer;
  const auto begin = [&](ToldKeys told) -> Status {
    writer.emplace(path, kGgufAlignment, options.existing);
    add_metadata(plan.config, plan.family->name, told, *writer);
    writer->add_string("general.name", source.name());
    if (const auto type = file_type(plan, options.type))
      writer->add_u32("general.file_type", uint32_t(*type));
    writer->add_u32("general.quantization_version", 2);
    tokenizer.add_to(*writer);
    for (const PlannedFactors& f : plan.factors) {
      const int64_t n = int64_t(f.values.size());
      writer->add_tensor(f.name, *weight_type_by_name("F32"), std::span(&n, 1), 4 * f.values.size());
    }
    for (size_t i = 0; i < types.size(); ++i) {
      const PlannedTensor& t = plan.tensors[i];
      writer->add_tensor(t.name, *types[i], t.shape,
                         uint64_t(elements_of(t.shape) / types[i]->block * types[i]->block_bytes));
    }
    RETURN_IF_ERROR(writer->begin());
    return append_factors(plan, *writer);
  };
  std::string wrong;
  for (const ToldKeys told : {ToldKeys{}, {.window_layers = true}, {.factors = true}}) {
    RETURN_IF_ERROR(begin(told));
    ASSIGN_OR_RETURN(const std::string found, difference(plan, *writer));
    if (wrong.empty()) wrong = found;
    if (found.empty()) break;
    writer.reset();
  }
  if (!writer)
    return unsupported(
        fmt::format("{}: GGUF files of {} cannot say all of its configuration ({}); without DST it is packed",
                    source.path(), plan.family->name, wrong));

  ThreadPool pool({options.threads});
  {
    Progress progress("converting", work, Progress::Unit::kItems);
    TensorWriter tensors(plan, *writer, pool, progress);
    for (size_t i = 0; i < types.size(); ++i) {
      RETURN_IF_ERROR(tensors.write(plan.tensors[i], *types[i]));
      for (const PlannedPiece& p : plan.tensors[i].pieces)
        source.drop_tensor_pages(plan.audit.tensors[static_cast<size_t>(p.weight)]->data);
    }
  }
  RETURN_IF_ERROR(writer->finish());
  c.file_bytes = writer->bytes();
  return c;
}

}  // namespace invar
