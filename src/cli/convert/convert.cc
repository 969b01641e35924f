#include "cli/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/convert/encode_rows.h"
#include "cli/convert/gguf_writer.h"
#include "cli/convert/weight_rows.h"

namespace invar {
namespace {

constexpr int64_t kSlabElements = 1 << 23;  // written at once

bool is_matrix(const ConvertedTensor& t) {
  const auto has = [&](std::string_view part) { return t.gguf_name.find(part) != std::string_view::npos; };
  return t.shape.size() >= 2 && t.gguf_name.ends_with(".weight") && !has("norm") && !has("ffn_gate_inp") &&
         !has("rope_freqs") && !has("conv1d");
}

Status write_converted(GgufFileWriter& writer, const SourceTensor& t, const WeightType& type,
                       ThreadPool& pool, Progress& progress) {
  const int64_t cols = t.shape.back(), rows = element_count(t.shape) / cols;
  const int64_t slab_rows = std::max<int64_t>(1, kSlabElements / cols);
  std::vector<std::byte> slab;
  for (int64_t begin = 0; begin < rows; begin += slab_rows) {
    const int64_t count = std::min(slab_rows, rows - begin);
    slab.resize(coded_bytes(type, count * cols));
    const StoredMatrix matrix{.tensor = &t, .rows = rows, .cols = cols};
    const auto read = [&](int64_t row, float* out) { read_row(matrix, row, out); };
    RETURN_IF_ERROR(encode_rows({t.stored_name, begin, count, cols, read}, type, pool, slab.data()));
    RETURN_IF_ERROR(writer.append(slab));
    progress.advance(count * cols);
  }
  return {};
}

}  // namespace

double bits_per_weight(const WeightType& t) {
  return 8.0 * t.block_bytes / t.block;
}

const WeightType& converted_type(const ConvertedTensor& t, const BlockEncoder* wanted) {
  if (wanted == nullptr || t.type.form == nullptr || !is_matrix(t)) return t.type;
  const WeightType* type = &known_weight_type(wanted->type);
  const bool is_float = type->unpack == nullptr;
  if (is_float) return *type;
  const bool is_head = t.gguf_name == "output.weight" || t.gguf_name == "token_embd.weight";
  if (is_head && bits_per_weight(*type) < bits_per_weight(known_weight_type("Q8_0")))
    type = &known_weight_type("Q8_0");
  const int64_t cols = t.shape.back();
  if (cols % type->block != 0) type = cols % 32 == 0 ? &known_weight_type("Q8_0") : &known_weight_type("F16");
  return t.bits <= bits_per_weight(*type) ? t.type : *type;
}

const WeightType& converted_type(const SourceTensor& t, const BlockEncoder* wanted) {
  const WeightType& type = lossless_type(t);  // a type joined from two tensors is none of a file
  return converted_type(
      {.gguf_name = t.stored_name, .shape = t.shape, .type = type, .bits = bits_per_weight(type)}, wanted);
}

Result<Conversion> convert_gguf(const ModelSource& source, const std::string& path,
                                const ConvertOptions& options) {
  const GgufFile* gguf = source.gguf();
  CHECK(gguf != nullptr);
  for (const std::string& file : source.files())
    if (std::error_code ec; std::filesystem::equivalent(file, path, ec))
      return invalid_argument(fmt::format("{}: is the source itself; name another file", path));
  GgufFileWriter writer(path, gguf->alignment(), options.existing);
  for (const GgufEntry& e : gguf->entries())
    if (!e.key.starts_with("split.")) writer.add_entry(e);
  if (options.type != nullptr) {
    writer.add_u32("general.file_type", uint32_t(options.type->file_type));
    writer.add_u32("general.quantization_version", 2);
  }
  Conversion c;
  int64_t work = 0;
  std::vector<const WeightType*> types;
  for (const SourceTensor& t : source.tensors()) {
    const WeightType& type = converted_type(t, options.type);
    types.push_back(&type);
    const uint64_t bytes = &type == t.type ? t.data.size() : coded_bytes(type, element_count(t.shape));
    writer.add_tensor(t.stored_name, type, t.shape, bytes);
    work += element_count(t.shape);
    c.bytes_before += t.data.size();
    c.bytes_after += bytes;
    ++c.tensors;
    c.kept += &type == t.type ? 1 : 0;
    c.widened += t.type->ggml_type < 0 && type.name == std::string_view("F32");
    ++c.types[type.name];
  }
  RETURN_IF_ERROR(writer.begin());
  ThreadPool pool({options.threads});
  {
    Progress progress("converting", work, Progress::Unit::kItems);
    for (size_t i = 0; i < types.size(); ++i) {
      const SourceTensor& t = source.tensors()[i];
      if (types[i] == t.type) {
        RETURN_IF_ERROR(writer.append(t.data));
        progress.advance(element_count(t.shape));
      } else {
        RETURN_IF_ERROR(write_converted(writer, t, *types[i], pool, progress));
      }
      source.drop_tensor_pages(t.data);
    }
  }
  RETURN_IF_ERROR(writer.finish());
  c.file_bytes = writer.bytes();
  return c;
}

}  // namespace invar
