#include "cli/convert/mlx_folder.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/progress.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "cli/convert/block_encoders.h"
#include "cli/convert/encode_rows.h"
#include "cli/convert/routers.h"
#include "cli/new_file.h"
#include "format/hf_source.h"
#include "models/audit.h"
#include "models/family.h"

namespace invar {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

// What is refused here for the layout of a folder can be packed.
constexpr const char* kPackInstead = "--packed --type MLX-4 writes a packed model";

Dtype scale_dtype(const SourceTensor& t) {
  return affine_scale_dtype(*t.type);
}

// A tensor of the folder that is written: one of the source, or the same matrix of all experts of a layer.
struct Output {
  std::string name;
  std::vector<const SourceTensor*> parts;
  bool quantized = false;
  bool stacked = false;  // with a dimension for the experts, be it one
  const SourceTensor& first() const { return *parts[0]; }
  int64_t rows() const { return first().shape[0]; }  // of each part
  int64_t cols() const { return first().shape[1]; }
  json::array shape(int64_t last) const {
    json::array shape = stacked ? json::array{parts.size()} : json::array();
    for (size_t d = 0; d + 1 < first().shape.size(); ++d)
      shape.push_back(first().shape[d]);
    shape.push_back(last);
    return shape;
  }
};

struct Matrices {
  std::unordered_set<const SourceTensor*> multiplied;       // but for routers, which stay
  std::unordered_map<const SourceTensor*, size_t> stacked;  // to its stack
  std::vector<Output> stacks;
};

// "model.layers.1.mlp.switch_mlp.up_proj.weight" of "model.layers.1.mlp.experts.0.up_proj.weight".
std::string stack_name(const std::string& stored, const char* matrix) {
  const size_t at = stored.find(".experts.");
  return stored.substr(0, at) + ".switch_mlp." + matrix + ".weight";
}

Status add_stacks(const ModelSource& source, const Graph& graph, const Audit& audit, Matrices* out) {
  for (const std::vector<ExpertWeights>& set : graph.expert_sets) {
    constexpr std::pair<const char*, WeightId ExpertWeights::*> kMatrices[] = {
        {"gate_proj", &ExpertWeights::gate},
        {"up_proj", &ExpertWeights::up},
        {"down_proj", &ExpertWeights::down}};
    for (const auto& [matrix, of] : kMatrices) {
      Output stack{.stacked = true};
      for (const ExpertWeights& e : set) {
        const SourceTensor* t = audit.tensors[size_t(e.*of)];
        const bool alone = graph.weights[size_t(e.*of)].fused.empty() && t->shape.size() == 2 &&
                           t->stored_name.find(".experts.") != std::string::npos;
        if (!alone || e.gate_bias != kNone || e.down_bias != kNone)
          return unsupported(fmt::format(
              "{}: {} holds several matrices or has a bias; a folder of MLX-4 is written of mixtures with a "
              "tensor for each matrix of an expert; {}",
              source.path(), quote(t->stored_name), kPackInstead));
        if (!stack.parts.empty() && t->type != stack.first().type)
          return unsupported(fmt::format(
              "{}: tensor {} is {} and {} is {}; MLX stacks them into one: store both as one type",
              source.path(), quote(stack.first().stored_name), stack.first().type->name,
              quote(t->stored_name), t->type->name));
        stack.parts.push_back(t);
        out->stacked[t] = out->stacks.size();
      }
      stack.name = stack_name(stack.first().stored_name, matrix);
      out->stacks.push_back(std::move(stack));
    }
  }
  return {};
}

// The tensors that the model multiplies with.
Result<Matrices> matrices(const ModelSource& source) {
  ASSIGN_OR_RETURN(const Family* family, find_family(source));
  ASSIGN_OR_RETURN(const ModelConfig config, family->parse(source));
  ASSIGN_OR_RETURN(const Graph graph, family->build(config));
  ASSIGN_OR_RETURN(const Audit audit, audit_tensors(source, config, graph));
  Matrices found;
  RETURN_IF_ERROR(add_stacks(source, graph, audit, &found));
  const std::unordered_set<WeightId> choosing = routers(graph);
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    const Weight& w = graph.weights[i];
    if (w.kind == Weight::Kind::kMatrix && !w.transposed && !choosing.contains(WeightId(i)))
      found.multiplied.insert(audit.tensors[i]);
  }
  return found;
}

Result<std::vector<Output>> plan(const ModelSource& source, int32_t group) {
  if (source.kind() != SourceKind::kHuggingFace || source.packed() != nullptr)
    return unsupported(fmt::format(
        "{}: a folder of MLX-4 is written from the folder with config.json and safetensors that it was made "
        "of; {}",
        source.path(), kPackInstead));
  ASSIGN_OR_RETURN(Matrices found, matrices(source));
  std::vector<Output> outputs;
  for (const SourceTensor& t : source.tensors()) {
    if (t.planes != nullptr || t.type->form == nullptr || !is_float(*t.type->form))
      return unsupported(
          fmt::format("{}: tensor {} is {}; a folder of MLX-4 is written from F32, F16 and BF16; {}",
                      source.path(), quote(t.stored_name), t.type->name, kPackInstead));
    const bool matrix =
        found.multiplied.contains(&t) && t.shape.size() == 2 && t.stored_name.ends_with(".weight");
    Output output{.name = t.stored_name, .parts = {&t}};
    if (const auto stack = found.stacked.find(&t); stack != found.stacked.end())
      output = std::exchange(found.stacks[stack->second], {});
    if (output.parts.empty()) continue;  // written with the first expert's
    output.quantized = matrix && t.shape[1] % group == 0;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

struct Quantized {
  std::vector<std::byte> codes, scales, biases;
};

// One part, behind those that are there.
Status quantize(const SourceTensor& t, int32_t group, ThreadPool& pool, Quantized* into) {
  const int64_t rows = t.shape[0], cols = t.shape[1];
  const size_t code_bytes = size_t(rows * cols / 2), scale_bytes = size_t(rows * (cols / group) * 2);
  const size_t codes_at = into->codes.size(), scales_at = into->scales.size();
  into->codes.resize(codes_at + code_bytes);
  into->scales.resize(scales_at + scale_bytes);
  into->biases.resize(scales_at + scale_bytes);
  const auto read = [&](int64_t row, float* out) {
    decode_weights(*t.type, t.data.data(), row * cols, cols, out);
  };
  return encode_affine4_rows(
      {t.stored_name, 0, rows, cols, read}, group, scale_dtype(t), pool,
      {into->codes.data() + codes_at, into->scales.data() + scales_at, into->biases.data() + scales_at});
}

// The directory of the file, and how long the file will be.
std::string header(const std::vector<Output>& outputs, int32_t group, uint64_t* data_bytes) {
  json::object directory{{"__metadata__", {{"format", "mlx"}}}};
  uint64_t at = 0;
  const auto add = [&](const std::string& name, const char* dtype, json::array shape, uint64_t bytes) {
    directory[name] = {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  };
  for (const Output& o : outputs) {
    const SourceTensor& t = o.first();
    if (!o.quantized) {
      add(o.name, t.type->name, t.shape.empty() ? json::array() : o.shape(t.shape.back()),
          t.data.size() * o.parts.size());
      continue;
    }
    const std::string stem = o.name.substr(0, o.name.size() - std::strlen(".weight"));
    const char* of_scales = scale_dtype(t) == Dtype::kF16 ? "F16" : "BF16";
    const int64_t groups = o.cols() / group, rows = o.rows() * int64_t(o.parts.size());
    add(o.name, "U32", o.shape(o.cols() / 8), uint64_t(rows * o.cols() / 2));
    for (const char* part : {".scales", ".biases"})
      add(stem + part, of_scales, o.shape(groups), uint64_t(rows * groups * 2));
  }
  *data_bytes = at;
  std::string text = json::serialize(directory);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

Result<std::string> config_text(const ModelSource& source, int32_t group) {
  ASSIGN_OR_RETURN(const std::string text, source.side_file("config.json"));
  boost::system::error_code error;
  json::value config = json::parse(text, error);
  if (error || !config.is_object()) return corrupt(source.path() + "/config.json: is no JSON object");
  const json::object rule{{"group_size", group}, {"bits", 4}, {"mode", "affine"}};
  config.as_object()["quantization"] = rule;
  config.as_object()["quantization_config"] = rule;
  return json::serialize(config);
}

// Of what a reader of the folder looks at, nothing of another model must stay. config.json goes first:
// without it, the folder is no model, whenever the rest is interrupted.
Status remove_old_model(const fs::path& folder) {
  std::vector<std::string> old = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                  "tokenizer.model"};
  old.insert(old.end(), std::begin(kSideFiles), std::end(kSideFiles));
  for (const std::string& name : old) {
    std::error_code ec;
    if (!fs::remove(folder / name, ec) && ec)
      return io_error(
          fmt::format("{}/{}: cannot be removed: {}", printable(folder.string()), name, ec.message()));
  }
  return {};
}

// Everything beside weights and configuration that tells of the model.
Status copy_side_files(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  for (const fs::directory_entry& file : fs::directory_iterator(from, ec)) {
    const std::string name = file.path().filename().string();
    const bool told = name == "config.json" || name.ends_with(".safetensors.index.json");
    const bool wanted = name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") ||
                        name.ends_with(".jinja") || name.ends_with(".tiktoken");
    if (!file.is_regular_file() || told || !wanted) continue;
    fs::copy_file(file.path(), to / name, fs::copy_options::overwrite_existing, ec);
    if (ec) return io_error(fmt::format("{}: cannot be copied: {}", printable(name), ec.message()));
  }
  if (ec) return io_error(fmt::format("{}: cannot be read: {}", printable(from.string()), ec.message()));
  return {};
}

}  // namespace

Result<Conversion> convert_to_mlx(const ModelSource& source, const std::string& folder,
                                  const MlxOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<Output> outputs, plan(source, options.group));
  ASSIGN_OR_RETURN(const std::string config, config_text(source, options.group));
  std::error_code ec;
  const bool free = !fs::exists(folder, ec) || (fs::is_directory(folder, ec) && fs::is_empty(folder, ec));
  if (options.existing == Existing::kKept && !free)
    return invalid_argument(fmt::format("{}: exists; give --overwrite or another name", printable(folder)));
  fs::create_directories(folder, ec);
  if (ec) return io_error(fmt::format("{}: cannot be made: {}", printable(folder), ec.message()));
  const fs::path from(source.path());
  if (fs::equivalent(from, folder, ec))
    return invalid_argument(fmt::format("{}: is the source itself; name another folder", printable(folder)));
  Conversion c;
  uint64_t data_bytes = 0;
  NewFile weights((fs::path(folder) / "model.safetensors").string(), "", options.existing);
  RETURN_IF_ERROR(weights.open());
  RETURN_IF_ERROR(weights.write(header(outputs, options.group, &data_bytes)));
  ThreadPool pool({options.threads});
  {
    Progress progress("converting", int64_t(data_bytes));
    for (const Output& o : outputs) {
      ++c.tensors;
      ++c.types[o.quantized ? "MLX-4" : o.first().type->name];
      c.kept += !o.quantized;
      Quantized q;
      for (const SourceTensor* t : o.parts) {
        c.bytes_before += t->data.size();
        if (o.quantized) {
          RETURN_IF_ERROR(quantize(*t, options.group, pool, &q));
        } else {
          RETURN_IF_ERROR(weights.write(t->data));
          progress.advance(int64_t(t->data.size()));
        }
        source.drop_tensor_pages(t->data);
      }
      for (const auto* plane : {&q.codes, &q.scales, &q.biases}) {
        RETURN_IF_ERROR(weights.write(*plane));
        progress.advance(int64_t(plane->size()));
      }
    }
  }
  RETURN_IF_ERROR(remove_old_model(folder));  // not before: whatever is refused leaves it as it is
  RETURN_IF_ERROR(weights.finish());
  RETURN_IF_ERROR(copy_side_files(from, folder));
  NewFile configuration((fs::path(folder) / "config.json").string(), "", options.existing);
  RETURN_IF_ERROR(configuration.open());
  RETURN_IF_ERROR(configuration.write(config));
  RETURN_IF_ERROR(configuration.finish());
  c.bytes_after = data_bytes;
  c.file_bytes = weights.bytes();
  return c;
}

}  // namespace invar
