#include "cli/convert/mlx_folder.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/progress.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "cli/convert/affine_group.h"
#include "cli/new_file.h"
#include "models/audit.h"
#include "models/family.h"

namespace invar {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

constexpr int64_t kTileRows = 64;

Dtype dtype_of(const SourceTensor& t) {
  return t.type->form->dtype;
}
// Scales of F32 weights are F16, which has more digits than BF16.
Dtype scale_dtype(const SourceTensor& t) {
  return dtype_of(t) == Dtype::kBF16 ? Dtype::kBF16 : Dtype::kF16;
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
          return unsupported(
              fmt::format("{}: {} holds several matrices or has a bias; MLX-4 is written of mixtures "
                          "with a tensor for each matrix of an expert; --type Q4_K writes a GGUF file of it",
                          source.path(), quote(t->stored_name)));
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

// Weights whose results choose experts.
std::unordered_set<WeightId> routers(const Graph& graph) {
  std::unordered_set<ValueId> choosing;
  for (const Node& n : graph.nodes)
    if (n.op == Op::kExperts)
      for (size_t i = 1; i < n.in.size(); i += 2)  // scores, and the gate of the shared expert
        choosing.insert(n.in[i]);
  std::unordered_set<WeightId> found;
  for (const Node& n : graph.nodes)
    if (n.op == Op::kLinear && choosing.contains(n.out)) found.insert(n.weight);
  return found;
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
        "{}: MLX-4 is written from the folder with config.json and safetensors that it was made of",
        source.path()));
  ASSIGN_OR_RETURN(Matrices found, matrices(source));
  std::vector<Output> outputs;
  for (const SourceTensor& t : source.tensors()) {
    if (t.planes != nullptr || t.type->form == nullptr || !is_float(*t.type->form))
      return unsupported(fmt::format("{}: tensor {} is {}; MLX-4 is written from F32, F16 and BF16",
                                     source.path(), quote(t.stored_name), t.type->name));
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
  const int64_t rows = t.shape[0], groups = t.shape[1] / group;
  Quantized q;
  q.codes.resize(size_t(rows * t.shape[1] / 2));
  q.scales.resize(size_t(rows * groups * 2));
  q.biases.resize(q.scales.size());
  std::atomic<bool> infinite{false}, too_large{false};
  pool.run((rows + kTileRows - 1) / kTileRows, [&](int64_t tile, int) {
    std::vector<float> w(size_t(group), 0.0f);
    std::vector<uint8_t> codes(size_t(group), 0);
    for (int64_t g = tile * kTileRows * groups; g < std::min(rows, (tile + 1) * kTileRows) * groups; ++g) {
      decode_weights(*t.type, t.data.data(), g * group, group, w.data());
      if (!std::all_of(w.begin(), w.end(), [](float x) { return std::isfinite(x); })) {
        infinite = true;
        return;
      }
      AffineGroup a{};
      if (!quantize_affine4(w.data(), group, scale_dtype(t), &a, codes.data())) too_large = true;
      std::memcpy(q.scales.data() + 2 * g, &a.scale, 2);
      std::memcpy(q.biases.data() + 2 * g, &a.bias, 2);
      for (int32_t k = 0; k < group; k += 2)
        q.codes[size_t((g * group + k) / 2)] = std::byte(codes[size_t(k)] | codes[size_t(k) + 1] << 4);
    }
  });
  if (infinite) return corrupt(fmt::format("tensor {}: holds NaN or infinity", quote(t.stored_name)));
  if (too_large)
    return unsupported(
        fmt::format("tensor {}: its range does not fit into scales of F16", quote(t.stored_name)));
  for (const auto plane : {&Quantized::codes, &Quantized::scales, &Quantized::biases})
    (into->*plane).insert((into->*plane).end(), (q.*plane).begin(), (q.*plane).end());
  return {};
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
  return {};
}

}  // namespace

Result<Conversion> convert_to_mlx(const ModelSource& source, const std::string& folder,
                                  const MlxOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<Output> outputs, plan(source, options.group));
  ASSIGN_OR_RETURN(const std::string config, config_text(source, options.group));
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) return io_error(fmt::format("{}: cannot be made: {}", printable(folder), ec.message()));
  const fs::path given(source.path()), from = fs::is_directory(given) ? given : given.parent_path();
  if (fs::equivalent(from, folder, ec))
    return invalid_argument(fmt::format("{}: is the source itself; name another folder", printable(folder)));
  RETURN_IF_ERROR(copy_side_files(from, folder));

  Conversion c;
  uint64_t data_bytes = 0;
  NewFile weights((fs::path(folder) / "model.safetensors").string());
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
  RETURN_IF_ERROR(weights.finish());
  NewFile configuration((fs::path(folder) / "config.json").string());
  RETURN_IF_ERROR(configuration.open());
  RETURN_IF_ERROR(configuration.write(config));
  RETURN_IF_ERROR(configuration.finish());
  c.bytes_after = data_bytes;
  c.file_bytes = weights.bytes();
  return c;
}

}  // namespace invar
