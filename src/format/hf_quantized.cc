#include "format/hf_quantized.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/quote.h"
#include "format/codec_parts.h"
#include "format/json_value.h"
#include "format/source_planes.h"

namespace invar {
namespace {

constexpr int64_t kMaxGroup = 1 << 20;

const JsonValue::Object* object_of(const JsonValue* v) {
  return v == nullptr ? nullptr : std::get_if<JsonValue::Object>(&v->data);
}
std::string text_of(const JsonValue& object, std::string_view key, std::string otherwise) {
  const JsonValue* v = object.find(key);
  const auto* text = v == nullptr ? nullptr : std::get_if<std::string>(&v->data);
  return text == nullptr ? otherwise : *text;
}
std::optional<int64_t> number_of(const JsonValue& object, std::string_view key) {
  const JsonValue* v = object.find(key);
  const auto* n = v == nullptr ? nullptr : std::get_if<int64_t>(&v->data);
  return n == nullptr ? std::nullopt : std::optional(*n);
}
bool flag_of(const JsonValue& object, std::string_view key, bool otherwise) {
  const JsonValue* v = object.find(key);
  const auto* b = v == nullptr ? nullptr : std::get_if<bool>(&v->data);
  return b == nullptr ? otherwise : *b;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}
bool is_a(const SourceTensor& t, std::string_view type) {
  return t.type->name == type;
}

// All tensors of a folder by their stored names; those that became part of another one are taken.
class Tensors {
 public:
  explicit Tensors(std::vector<SourceTensor>& all) : all_(all), taken_(all.size()) {
    for (size_t i = 0; i < all.size(); ++i)
      by_name_.emplace(all[i].stored_name, i);
  }
  size_t size() const { return all_.size(); }
  SourceTensor& operator[](size_t i) { return all_[i]; }
  const SourceTensor* find(const std::string& stored_name) const {
    const auto it = by_name_.find(stored_name);
    return it == by_name_.end() ? nullptr : &all_[it->second];
  }
  Status need(const std::string& stored_name, const SourceTensor** out) const {
    *out = find(stored_name);
    if (*out != nullptr) return {};
    return corrupt(fmt::format("tensor {} is missing; the matrix it belongs to cannot be read without it",
                               quote(stored_name)));
  }
  void take(const SourceTensor* t) { taken_[static_cast<size_t>(t - all_.data())] = true; }
  std::vector<SourceTensor> rest() {
    std::vector<SourceTensor> out;
    out.reserve(all_.size());
    for (size_t i = 0; i < all_.size(); ++i)
      if (!taken_[i]) out.push_back(std::move(all_[i]));
    return out;
  }

 private:
  std::vector<SourceTensor>& all_;
  std::vector<bool> taken_;
  std::unordered_map<std::string, size_t> by_name_;
};

Status expect(const SourceTensor& t, std::string_view type, const std::vector<int64_t>& shape) {
  if (is_a(t, type) && t.shape == shape) return {};
  return corrupt(fmt::format("tensor {} is {} {}, but its matrix wants {} {}", quote(t.stored_name),
                             t.type->name, shape_text(t.shape), type, shape_text(shape)));
}

Status refuse(const SourceTensor& t, const std::string& what) {
  return unsupported(fmt::format("tensor {} {}", quote(t.stored_name), what));
}

// Turns t into the joined matrix.
Status become(SourceTensor& t, const std::string& type, std::vector<int64_t> shape, SourcePlanes planes) {
  const WeightType* found = weight_type_by_name(type);
  CHECK(found != nullptr);
  if (planes.cols % 32 != 0)
    return refuse(t, fmt::format("has rows of {} elements, no multiple of 32", planes.cols));
  planes.data = t.data;
  CHECK(t.data.size() == static_cast<size_t>(planes.rows * (planes.cols / 32) * found->block_bytes));
  t.type = found;
  t.shape = std::move(shape);
  t.planes = std::make_shared<const SourcePlanes>(planes);
  return {};
}

// ---- MLX

struct MlxRule {
  int64_t bits = 4, group = 64;
  std::string mode = "affine";
};

// The weight type of affine codes; "": there is none of so many bits.
std::string affine_type(int64_t bits, bool bf16) {
  if (bits < 2 || bits > 8 || bits == 7) return "";
  return fmt::format("MLX{}_{}", bits, bf16 ? "BF16" : "F16");
}

MlxRule mlx_rule(const JsonValue& config, const std::string& stem) {
  MlxRule rule;
  rule.mode = text_of(config, "mode", rule.mode);
  rule.bits = number_of(config, "bits").value_or(rule.bits);
  rule.group = number_of(config, "group_size").value_or(rule.group);
  if (const JsonValue* own = config.find(stem); object_of(own) != nullptr) {
    rule.mode = text_of(*own, "mode", rule.mode);
    rule.bits = number_of(*own, "bits").value_or(rule.bits);
    rule.group = number_of(*own, "group_size").value_or(rule.group);
  }
  return rule;
}

Status join_mlx(Tensors& tensors, SourceTensor& weight, const std::string& stem, const JsonValue& config) {
  const MlxRule rule = mlx_rule(config, stem);
  const SourceTensor* scales = tensors.find(stem + ".scales");
  const bool affine = rule.mode == "affine";
  struct Mode {
    const char *mode, *type;
    int64_t bits, group;
  };
  constexpr Mode kModes[] = {
      {"mxfp4", "MLX_MXFP4", 4, 32}, {"mxfp8", "MLX_MXFP8", 8, 32}, {"nvfp4", "MLX_NVFP4", 4, 16}};
  std::string type = affine ? affine_type(rule.bits, is_a(*scales, "BF16")) : "";
  for (const Mode& m : kModes)
    if (rule.mode == m.mode && rule.bits == m.bits && rule.group == m.group) type = m.type;
  const bool group_fits = !affine || rule.group == 32 || rule.group == 64 || rule.group == 128;
  if (type.empty() || !group_fits)
    return refuse(weight,
                  fmt::format("is quantized by mode {} with {} bits in groups of {}; affine with 2, 3, "
                              "4, 5, 6, 8 bits in groups of 32, 64, 128, mxfp4, mxfp8 and nvfp4 are "
                              "supported",
                              quote(rule.mode), rule.bits, rule.group));
  if (affine && !is_a(*scales, "BF16") && !is_a(*scales, "F16"))
    return refuse(*scales, fmt::format("has type {}; scales in BF16 and F16 are supported: convert the model "
                                       "with one of these",
                                       scales->type->name));
  if (!is_a(weight, "U32") || weight.shape.size() < 2 || weight.shape.size() > 3 || weight.data.empty())
    return corrupt(fmt::format("tensor {} is {} {}, no matrix of packed codes", quote(weight.stored_name),
                               weight.type->name, shape_text(weight.shape)));
  const int64_t stored_bits = weight.shape.back() * 32;
  if (stored_bits % rule.bits != 0 || stored_bits / rule.bits % rule.group != 0)
    return corrupt(fmt::format("tensor {} has rows of {} bytes, which {} bits in groups of {} do not fill",
                               quote(weight.stored_name), stored_bits / 8, rule.bits, rule.group));
  std::vector<int64_t> shape = weight.shape;
  shape.back() = stored_bits / rule.bits;
  SourcePlanes planes;
  planes.cols = shape.back();
  planes.rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    planes.rows *= shape[i];
  planes.group = static_cast<int32_t>(rule.group);
  std::vector<int64_t> scale_shape = shape;
  scale_shape.back() = planes.groups();
  RETURN_IF_ERROR(expect(*scales, affine ? scales->type->name : "U8", scale_shape));
  planes.scales = scales->data;
  tensors.take(scales);
  if (affine) {
    const SourceTensor* biases = nullptr;
    RETURN_IF_ERROR(tensors.need(stem + ".biases", &biases));
    RETURN_IF_ERROR(expect(*biases, scales->type->name, scale_shape));
    planes.offsets = biases->data;
    tensors.take(biases);
  }
  return become(weight, type, std::move(shape), planes);
}

// ---- gpt-oss: blocks [.., rows, cols / 32, 16] and scales [.., rows, cols / 32]

Status join_mxfp4(Tensors& tensors, SourceTensor& blocks, const std::string& stem) {
  const SourceTensor* scales = nullptr;
  RETURN_IF_ERROR(tensors.need(stem + "_scales", &scales));
  std::vector<int64_t> shape = blocks.shape;
  if (!is_a(blocks, "U8") || shape.size() < 3 || shape.size() > 4 || shape.back() != 16 ||
      blocks.data.empty())
    return corrupt(fmt::format("tensor {} is {} {}, no blocks of MXFP4", quote(blocks.stored_name),
                               blocks.type->name, shape_text(shape)));
  shape.pop_back();
  RETURN_IF_ERROR(expect(*scales, "U8", shape));
  SourcePlanes planes;
  planes.group = 32;
  planes.cols = shape.back() * 32;
  planes.rows = static_cast<int64_t>(scales->data.size()) / shape.back();
  planes.scales = scales->data;
  shape.back() = planes.cols;
  tensors.take(scales);
  blocks.name.resize(blocks.name.size() - std::string_view("_blocks").size());
  return become(blocks, "MLX_MXFP4", std::move(shape), planes);
}

// ---- FP8

Status join_fp8(Tensors& tensors, SourceTensor& weight, const std::string& stem, const JsonValue& config) {
  const SourceTensor* scales = tensors.find(stem + ".weight_scale_inv");
  const bool blocks = scales != nullptr;
  if (!blocks) RETURN_IF_ERROR(tensors.need(stem + ".weight_scale", &scales));
  if (weight.shape.size() != 2 || weight.data.empty())
    return corrupt(
        fmt::format("tensor {} is {}, no matrix", quote(weight.stored_name), shape_text(weight.shape)));
  SourcePlanes planes;
  planes.rows = weight.shape[0], planes.cols = weight.shape[1];
  if (planes.rows > INT32_MAX || planes.cols > INT32_MAX) return refuse(weight, "is too large");
  planes.group_rows = static_cast<int32_t>(planes.rows), planes.group = static_cast<int32_t>(planes.cols);
  if (blocks) {
    int64_t sizes[2] = {128, 128};
    if (const JsonValue* v = config.find("weight_block_size"); v != nullptr) {
      const auto* array = std::get_if<JsonValue::Array>(&v->data);
      for (size_t i = 0; i < 2; ++i) {
        const auto* n =
            array != nullptr && array->size() == 2 ? std::get_if<int64_t>(&(*array)[i].data) : nullptr;
        if (n == nullptr || *n < 1 || *n > kMaxGroup)
          return corrupt("config.json: weight_block_size should be two positive numbers");
        sizes[i] = *n;
      }
    }
    planes.group_rows = static_cast<int32_t>(sizes[0]), planes.group = static_cast<int32_t>(sizes[1]);
  }
  const int64_t bands = (planes.rows + planes.group_rows - 1) / planes.group_rows;
  planes.wide_scales = is_a(*scales, "F32");
  if (!planes.wide_scales && !is_a(*scales, "BF16"))
    return refuse(*scales,
                  fmt::format("has type {}; scales in F32 and BF16 are supported", scales->type->name));
  if (blocks) {
    RETURN_IF_ERROR(expect(*scales, scales->type->name, {bands, planes.groups()}));
  } else if (scales->data.size() != (planes.wide_scales ? 4u : 2u)) {
    return refuse(*scales,
                  fmt::format("is {}; one scale for the matrix, or blocks of them in weight_scale_inv, "
                              "are supported",
                              shape_text(scales->shape)));
  }
  planes.scales = scales->data;
  tensors.take(scales);
  return become(weight, "FP8_E4M3", weight.shape, planes);
}

// ---- GPTQ and AWQ

// Group of each column: in the order of the columns, or any.
Status read_columns(const SourceTensor& t, int64_t cols, int64_t group, int64_t groups, bool* in_order) {
  RETURN_IF_ERROR(expect(t, "I32", {cols}));
  *in_order = true;
  for (int64_t k = 0; k < cols; ++k) {
    const uint32_t g = u32_at(bytes_of(t.data.data()) + 4 * k);
    if (g >= static_cast<uint64_t>(groups))
      return corrupt(
          fmt::format("tensor {}: column {} is in group {} of {}", quote(t.stored_name), k, g, groups));
    *in_order = *in_order && static_cast<int64_t>(g) == k / group;
  }
  return {};
}

Status join_int4(Tensors& tensors, SourceTensor& codes, const std::string& stem, const JsonValue& config,
                 bool awq) {
  const int64_t bits =
      number_of(config, awq ? "w_bit" : "bits").value_or(number_of(config, "bits").value_or(4));
  if (bits != 4) return refuse(codes, fmt::format("has {} bits; 4 are supported", bits));
  if (awq && text_of(config, "version", "gemm") != "gemm")
    return refuse(codes, "is AWQ of another version than gemm");
  if (!is_a(codes, "I32") || codes.shape.size() != 2 || codes.data.empty() || codes.shape[0] > INT32_MAX ||
      codes.shape[1] > INT32_MAX)
    return corrupt(fmt::format("tensor {} is {} {}, no matrix of packed codes", quote(codes.stored_name),
                               codes.type->name, shape_text(codes.shape)));
  SourcePlanes planes;
  planes.cols = codes.shape[0] * (awq ? 1 : 8), planes.rows = codes.shape[1] * (awq ? 8 : 1);
  int64_t group = number_of(config, awq ? "q_group_size" : "group_size")
                      .value_or(number_of(config, "group_size").value_or(128));
  if (group == -1) group = planes.cols;
  if (group < 1 || group % 32 != 0 || group > planes.cols || planes.rows % 8 != 0)
    return refuse(codes,
                  fmt::format("is a matrix of {} by {} in groups of {}; groups must be multiples of 32 "
                              "and rows of 8",
                              planes.rows, planes.cols, group));
  planes.group = static_cast<int32_t>(group);
  const SourceTensor *zeros = nullptr, *scales = nullptr;
  RETURN_IF_ERROR(tensors.need(stem + ".qzeros", &zeros));
  RETURN_IF_ERROR(tensors.need(stem + ".scales", &scales));
  RETURN_IF_ERROR(expect(*zeros, "I32", {planes.groups(), planes.rows / 8}));
  if (is_a(*scales, "BF16") || is_a(*scales, "F32"))
    return refuse(*scales, fmt::format("has type {}; scales in F16 are supported", scales->type->name));
  RETURN_IF_ERROR(expect(*scales, "F16", {planes.groups(), planes.rows}));
  planes.scales = scales->data, planes.offsets = zeros->data;
  tensors.take(scales), tensors.take(zeros);
  const char* type = "AWQ4";
  if (!awq) {
    planes.zero_shift = text_of(config, "checkpoint_format", "gptq") == "gptq_v2" ? 0 : 1;
    type = flag_of(config, "sym", false) ? "GPTQ4_SYM" : "GPTQ4";
    if (const SourceTensor* columns = tensors.find(stem + ".g_idx"); columns != nullptr) {
      bool in_order = true;
      RETURN_IF_ERROR(read_columns(*columns, planes.cols, group, planes.groups(), &in_order));
      if (!in_order) planes.columns = columns->data, type = "GPTQ4_ACT_ORDER";
      tensors.take(columns);
    }
  }
  codes.name = codes.name.substr(0, codes.name.size() - std::string_view("qweight").size()) + "weight";
  return become(codes, type, {planes.rows, planes.cols}, planes);
}

// The object of config.json that says how weights are quantized; nullptr: there is none.
const JsonValue* quantization_of(const JsonValue& config) {
  for (const char* key : {"quantization_config", "quantization"})
    if (const JsonValue* v = config.find(key); object_of(v) != nullptr) return v;
  const JsonValue* text = config.find("text_config");
  return object_of(text) == nullptr ? nullptr : quantization_of(*text);
}

}  // namespace

Result<std::vector<SourceTensor>> join_quantized(std::string_view config_text,
                                                 std::vector<SourceTensor> tensors) {
  ASSIGN_OR_RETURN(const JsonValue config, parse_json(config_text, {.bytes = 16 << 20, .values = 1 << 20}));
  const JsonValue* how = object_of(&config) == nullptr ? nullptr : quantization_of(config);
  if (how == nullptr) return tensors;
  const std::string method = text_of(*how, "quant_method", "mlx");
  Tensors all(tensors);
  const auto stem_of = [](const std::string& name, std::string_view suffix) {
    return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SourceTensor& t = all[i];
    const std::string weight = stem_of(t.stored_name, ".weight"), packed = stem_of(t.stored_name, ".qweight"),
                      blocks = stem_of(t.stored_name, "_blocks");
    if (method == "mlx" && !weight.empty() && all.find(weight + ".scales") != nullptr) {
      RETURN_IF_ERROR(join_mlx(all, t, weight, *how));
    } else if (method == "mxfp4" && !blocks.empty()) {
      RETURN_IF_ERROR(join_mxfp4(all, t, blocks));
    } else if (method == "fp8" && !weight.empty() && is_a(t, "F8_E4M3")) {
      RETURN_IF_ERROR(join_fp8(all, t, weight, *how));
    } else if ((method == "gptq" || method == "awq") && !packed.empty()) {
      RETURN_IF_ERROR(join_int4(all, t, packed, *how, method == "awq"));
    }
  }
  return all.rest();
}

}  // namespace invar
