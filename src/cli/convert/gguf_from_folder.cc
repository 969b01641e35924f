// A model in a Hugging Face folder as a GGUF file.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "cli/convert/convert.h"
#include "cli/convert/encode_rows.h"
#include "cli/convert/gguf_metadata.h"
#include "cli/convert/gguf_plan.h"
#include "cli/convert/gguf_tokenizer.h"
#include "cli/convert/gguf_writer.h"
#include "cli/convert/weight_rows.h"
#include "format/source_planes.h"

namespace invar {
namespace {

constexpr int64_t kSlabElements = 1 << 23;  // written at once

const WeightType& type_of(const PlannedTensor& t, const BlockEncoder* wanted) {
  if (t.is_vector) return known_weight_type("F32");
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
    const int64_t cols = by_rows ? t.shape.back() : 1, rows = element_count(t.shape) / cols;
    const int64_t slab = std::max<int64_t>(1, kSlabElements / cols);
    const auto row_bytes = coded_bytes(type, cols);
    std::vector<std::byte> bytes;
    for (int64_t begin = 0; begin < rows; begin += slab) {
      const int64_t count = std::min(slab, rows - begin);
      bytes.resize(static_cast<size_t>(count) * row_bytes);
      const auto read = [&](int64_t row, float* out) {
        const PlannedPiece& piece = piece_of(t, row);
        plan_.read_row(piece.weight, row - piece.first_row, out);
      };
      const auto copy = [&](int64_t row, std::byte* out) { return copy_row(t, type, row, out); };
      RETURN_IF_ERROR(encode_rows({t.name, begin, count, cols, read, copy}, type, pool_, bytes.data()));
      RETURN_IF_ERROR(writer_.append(bytes));
      progress_.advance(count * cols);
    }
    return {};
  }

 private:
  static const PlannedPiece& piece_of(const PlannedTensor& t, int64_t row) {
    return *std::prev(std::upper_bound(t.pieces.begin(), t.pieces.end(), row,
                                       [](int64_t r, const PlannedPiece& p) { return r < p.first_row; }));
  }

  // A row whose stored bytes are right, or can be without rounding; false: its numbers are encoded.
  bool copy_row(const PlannedTensor& t, const WeightType& type, int64_t row, std::byte* out) const {
    const PlannedPiece& piece = piece_of(t, row);
    const auto i = static_cast<size_t>(piece.weight);
    const Weight& w = plan_.from.weights[i];
    const SourceTensor& source = *plan_.audit.tensors[i];
    const bool same = &type == source.type && source.planes == nullptr && !w.transposed && !w.add_one;
    const bool same_codes = source.planes != nullptr && type.name == std::string_view("MXFP4");
    if (!same && !same_codes) return false;
    const int64_t at = stored_row(w, plan_.channel(piece.weight, row - piece.first_row));
    if (same_codes) {
      copy_mxfp4_row(*source.planes, *source.type, at, out);
    } else {
      const auto n = coded_bytes(type, w.cols);
      std::memcpy(out, source.data.data() + static_cast<size_t>(at) * n, n);
    }
    return true;
  }

  const GgufPlan& plan_;
  GgufFileWriter& writer_;
  ThreadPool& pool_;
  Progress& progress_;
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
    work += element_count(t.shape);
    c.kept += types.back() == t.natural ? 1 : 0;
    const WeightType& stored = *plan.audit.tensors[size_t(t.pieces.front().weight)]->type;
    c.widened += stored.ggml_type < 0 && types.back()->name == std::string_view("F32");
    ++c.types[types.back()->name];
    ++c.tensors;
    c.bytes_after += coded_bytes(*types.back(), element_count(t.shape));
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
      writer->add_tensor(f.name, known_weight_type("F32"), std::span(&n, 1), 4 * f.values.size());
    }
    for (size_t i = 0; i < types.size(); ++i) {
      const PlannedTensor& t = plan.tensors[i];
      writer->add_tensor(t.name, *types[i], t.shape, coded_bytes(*types[i], element_count(t.shape)));
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
