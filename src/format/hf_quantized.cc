#include "format/hf_quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <type_traits>
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
  const WeightType& found = known_weight_type(type);
  if (planes.cols % 32 != 0)
    return refuse(t, fmt::format("has rows of {} elements, no multiple of 32", planes.cols));
  planes.data = t.data;
  CHECK(t.data.size() == static_cast<size_t>(planes.rows * (planes.cols / 32) * found.block_bytes));
  t.type = &found;
  t.shape = std::move(shape);
  t.planes = std::make_shared<const SourcePlanes>(planes);
  return {};
}

// Global factors: f32, one for all rows or `count` of them for as many parts; value makes them what sums are
// multiplied with.
template <class Value>
Status read_factors(Tensors& tensors, const SourceTensor& t, int64_t count, SourcePlanes* planes,
                    Value value) {
  const auto n = static_cast<int64_t>(t.data.size() / 4);
  if (!is_a(t, "F32") || (n != 1 && n != count))
    return corrupt(fmt::format("tensor {} is {} {}; its matrix wants one factor in F32{}",
                               quote(t.stored_name), t.type->name, shape_text(t.shape),
                               count == 1 ? "" : fmt::format(", or {}", count)));
  for (int64_t i = 0; i < n; ++i)
    planes->factors.push_back(value(bits_float(u32_at(bytes_of(t.data.data()) + 4 * i))));
  tensors.take(&t);
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
  if (const SourceTensor* global = tensors.find(stem + ".global_scale");
      rule.mode == "nvfp4" && global != nullptr) {
    // The largest magnitude of the matrix, which 448 * 6 of codes stands for.
    RETURN_IF_ERROR(read_factors(tensors, *global, shape.size() == 3 ? shape[0] : 1, &planes,
                                 [](float largest) { return largest / 2688.0f; }));
    type = "MLX_NVFP4_SCALED";
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

// ---- FP8 and NVFP4 of other tools

// How activations are rounded on other devices; here they are rounded as docs/numerics.md says.
void take_input_scales(Tensors& tensors, const std::string& stem) {
  for (const char* name : {".input_scale", ".input_global_scale"})
    if (const SourceTensor* t = tensors.find(stem + name); t != nullptr) tensors.take(t);
}

// Rows and columns of a block: weight_block_size of the configuration, or block_structure of a group of
// layers in the configurations of compressed-tensors; 128 by 128 without either.
Status block_size(const JsonValue& config, int64_t sizes[2]) {
  const JsonValue* found = config.find("weight_block_size");
  if (const auto* groups = object_of(config.find("config_groups")); found == nullptr && groups != nullptr)
    for (const auto& [name, group] : *groups)
      if (const JsonValue* weights = group.find("weights"); found == nullptr && object_of(weights) != nullptr)
        found = weights->find("block_structure");
  sizes[0] = sizes[1] = 128;
  if (found == nullptr) return {};
  const auto* array = std::get_if<JsonValue::Array>(&found->data);
  for (size_t i = 0; i < 2; ++i) {
    const auto* n =
        array != nullptr && array->size() == 2 ? std::get_if<int64_t>(&(*array)[i].data) : nullptr;
    if (n == nullptr || *n < 1 || *n > kMaxGroup)
      return corrupt("config.json: weight_block_size or block_structure should be two positive numbers");
    sizes[i] = *n;
  }
  return {};
}

Status join_fp8(Tensors& tensors, SourceTensor& weight, const std::string& stem, const JsonValue& config) {
  const SourceTensor* scales = tensors.find(stem + ".weight_scale_inv");
  const bool inverse = scales != nullptr;
  if (!inverse) RETURN_IF_ERROR(tensors.need(stem + ".weight_scale", &scales));
  if (weight.shape.size() != 2 || weight.data.empty())
    return corrupt(
        fmt::format("tensor {} is {}, no matrix", quote(weight.stored_name), shape_text(weight.shape)));
  SourcePlanes planes;
  planes.rows = weight.shape[0], planes.cols = weight.shape[1];
  if (planes.rows > INT32_MAX || planes.cols > INT32_MAX) return refuse(weight, "is too large");
  planes.wide_scales = is_a(*scales, "F32");
  if (!planes.wide_scales && !is_a(*scales, "BF16"))
    return refuse(*scales,
                  fmt::format("has type {}; scales in F32 and BF16 are supported", scales->type->name));
  planes.group_rows = static_cast<int32_t>(planes.rows), planes.group = static_cast<int32_t>(planes.cols);
  const bool one = scales->data.size() == (planes.wide_scales ? 4u : 2u);
  const bool per_row = scales->shape == std::vector<int64_t>{planes.rows} ||
                       scales->shape == std::vector<int64_t>{planes.rows, 1};
  if (!inverse && !one && per_row) {
    planes.group_rows = 1;
  } else if (inverse || !one) {
    int64_t sizes[2];
    RETURN_IF_ERROR(block_size(config, sizes));
    planes.group_rows = static_cast<int32_t>(sizes[0]), planes.group = static_cast<int32_t>(sizes[1]);
    const int64_t bands = (planes.rows + planes.group_rows - 1) / planes.group_rows;
    RETURN_IF_ERROR(expect(*scales, scales->type->name, {bands, planes.groups()}));
  }
  planes.scales = scales->data;
  tensors.take(scales);
  take_input_scales(tensors, stem);
  const bool wide = planes.group >= planes.cols || planes.group % 128 == 0;
  if (!wide && planes.group % 32 != 0)
    return refuse(weight,
                  fmt::format("has blocks of {} columns; multiples of 32 are supported", planes.group));
  return become(weight, wide ? "FP8_E4M3" : "FP8_E4M3_G32", weight.shape, planes);
}

// codes U8 [rows, cols / 2], weight_scale E4M3 [rows, cols / 16] and the tensor of the factor.
template <class Value>
Status join_nvfp4(Tensors& tensors, SourceTensor& codes, const std::string& stem, const char* factor,
                  Value value) {
  const SourceTensor *scales = nullptr, *global = nullptr;
  RETURN_IF_ERROR(tensors.need(stem + ".weight_scale", &scales));
  RETURN_IF_ERROR(tensors.need(stem + factor, &global));
  if (!is_a(codes, "U8") || codes.shape.size() != 2 || codes.data.empty() || codes.shape[1] > INT32_MAX)
    return corrupt(fmt::format("tensor {} is {} {}, no matrix of packed codes", quote(codes.stored_name),
                               codes.type->name, shape_text(codes.shape)));
  SourcePlanes planes;
  planes.rows = codes.shape[0], planes.cols = codes.shape[1] * 2;
  planes.group = 16;
  RETURN_IF_ERROR(expect(*scales, "F8_E4M3", {planes.rows, planes.groups()}));
  planes.scales = scales->data;
  RETURN_IF_ERROR(read_factors(tensors, *global, 1, &planes, value));
  tensors.take(scales);
  take_input_scales(tensors, stem);
  codes.name = codes.name.substr(0, codes.name.rfind('.')) + ".weight";
  return become(codes, "MLX_NVFP4_SCALED", {planes.rows, planes.cols}, planes);
}

// ---- GPTQ and AWQ

// The group of each column. Where they do not follow each other, *order becomes the columns group by group,
// each group's in their own order.
Status read_columns(const SourceTensor& t, int64_t cols, int64_t group, int64_t groups,
                    std::vector<int32_t>* order) {
  RETURN_IF_ERROR(expect(t, "I32", {cols}));
  const auto group_of = [&](int64_t k) { return u32_at(bytes_of(t.data.data()) + 4 * k); };
  std::vector<int64_t> count(static_cast<size_t>(groups));
  bool in_order = true;
  for (int64_t k = 0; k < cols; ++k) {
    const uint32_t g = group_of(k);
    if (g >= static_cast<uint64_t>(groups))
      return corrupt(
          fmt::format("tensor {}: column {} is in group {} of {}", quote(t.stored_name), k, g, groups));
    in_order = in_order && static_cast<int64_t>(g) == k / group;
    ++count[g];
  }
  if (in_order) return {};
  for (int64_t g = 0; g < groups; ++g)
    if (const int64_t n = count[static_cast<size_t>(g)]; n % 32 != 0)
      return refuse(t, fmt::format("has {} columns in group {}, no multiple of 32", n, g));
  std::vector<int64_t> next(static_cast<size_t>(groups));  // where a group's next column goes
  std::exclusive_scan(count.begin(), count.end(), next.begin(), int64_t{0});
  order->resize(static_cast<size_t>(cols));
  for (int64_t k = 0; k < cols; ++k)
    (*order)[static_cast<size_t>(next[group_of(k)]++)] = static_cast<int32_t>(k);
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
  std::string type = "AWQ4";
  if (!awq) {
    planes.zero_shift = text_of(config, "checkpoint_format", "gptq") == "gptq_v2" ? 0 : 1;
    type = flag_of(config, "sym", false) ? "GPTQ4_SYM" : "GPTQ4";
    if (const SourceTensor* columns = tensors.find(stem + ".g_idx"); columns != nullptr) {
      RETURN_IF_ERROR(read_columns(*columns, planes.cols, group, planes.groups(), &planes.order));
      if (!planes.order.empty()) planes.columns = columns->data, type += "_ACT_ORDER";
      tensors.take(columns);
    }
  }
  codes.name = codes.name.substr(0, codes.name.size() - std::string_view("qweight").size()) + "weight";
  return become(codes, type, {planes.rows, planes.cols}, planes);
}

// Members in any order.
bool same(const JsonValue& a, const JsonValue& b) {
  const auto *x = object_of(&a), *y = object_of(&b);
  if (x != nullptr && y != nullptr)
    return x->size() == y->size() && std::all_of(x->begin(), x->end(), [&](const JsonMember& m) {
             const JsonValue* other = b.find(m.name);
             return other != nullptr && same(m.value, *other);
           });
  const auto *v = std::get_if<JsonValue::Array>(&a.data), *w = std::get_if<JsonValue::Array>(&b.data);
  if (v != nullptr && w != nullptr) return std::equal(v->begin(), v->end(), w->begin(), w->end(), same);
  if (a.data.index() != b.data.index() || x != nullptr || v != nullptr) return false;
  return std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, JsonValue::Array> || std::is_same_v<T, JsonValue::Object>)
          return false;
        else
          return value == std::get<T>(b.data);
      },
      a.data);
}

// The object of config.json that says how weights are quantized; nullptr: there is none. MLX writes it under
// both keys.
Result<const JsonValue*> quantization_of(const JsonValue& config) {
  const JsonValue* found = nullptr;
  for (const char* key : {"quantization_config", "quantization"}) {
    const JsonValue* v = config.find(key);
    if (v == nullptr || std::holds_alternative<std::nullptr_t>(v->data)) continue;
    if (object_of(v) == nullptr)
      return corrupt(
          fmt::format("config.json: {} should be an object, but is {}", quote(key), v->type_name()));
    if (found != nullptr && !same(*found, *v))
      return corrupt(
          "config.json: \"quantization\" and \"quantization_config\" differ; drop the one by which the "
          "weights were not written");
    found = v;
  }
  const JsonValue* text = config.find("text_config");
  return found != nullptr || object_of(text) == nullptr ? Result<const JsonValue*>(found)
                                                        : quantization_of(*text);
}

// A key that counts for the method has the right type, so that none of another type is taken for absent.
template <class T>
Status check_types(const JsonValue& how, const char* wanted, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const JsonValue* v = how.find(key); v != nullptr &&
                                            !std::holds_alternative<std::nullptr_t>(v->data) &&
                                            !std::holds_alternative<T>(v->data))
      return corrupt(fmt::format("config.json: {} of the quantization should be {}, but is {}", quote(key),
                                 wanted, v->type_name()));
  return {};
}

Status check_quantization(const JsonValue& how, std::string_view method) {
  if (method == "mlx") {
    RETURN_IF_ERROR(check_types<std::string>(how, "a string", {"mode"}));
    RETURN_IF_ERROR(check_types<int64_t>(how, "an integer", {"bits", "group_size"}));
    for (const auto& [name, own] : *object_of(&how))
      if (object_of(&own) != nullptr) RETURN_IF_ERROR(check_quantization(own, method));
  } else if (method == "gptq" || method == "awq") {
    RETURN_IF_ERROR(check_types<int64_t>(how, "an integer", {"bits", "group_size", "w_bit", "q_group_size"}));
    RETURN_IF_ERROR(
        check_types<std::string>(how, "a string", {method == "awq" ? "version" : "checkpoint_format"}));
    RETURN_IF_ERROR(check_types<bool>(how, "true or false", {"sym"}));
  }
  return {};
}

}  // namespace

Result<std::vector<SourceTensor>> join_quantized(std::string_view config_text,
                                                 std::vector<SourceTensor> tensors) {
  ASSIGN_OR_RETURN(const JsonValue config, parse_json(config_text, {.bytes = 16 << 20, .values = 1 << 20}));
  if (object_of(&config) == nullptr) return tensors;
  ASSIGN_OR_RETURN(const JsonValue* how, quantization_of(config));
  if (how == nullptr) return tensors;
  RETURN_IF_ERROR(check_types<std::string>(*how, "a string", {"quant_method"}));
  const std::string method = text_of(*how, "quant_method", "mlx");
  RETURN_IF_ERROR(check_quantization(*how, method));
  const bool others = method == "compressed-tensors" || method == "modelopt";
  Tensors all(tensors);
  const auto stem_of = [](const std::string& name, std::string_view suffix) {
    return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SourceTensor& t = all[i];
    const std::string weight = stem_of(t.stored_name, ".weight"), packed = stem_of(t.stored_name, ".qweight"),
                      blocks = stem_of(t.stored_name, "_blocks"),
                      nibbles = stem_of(t.stored_name, ".weight_packed");
    if (method == "mlx" && !weight.empty() && all.find(weight + ".scales") != nullptr) {
      RETURN_IF_ERROR(join_mlx(all, t, weight, *how));
    } else if (method == "mxfp4" && !blocks.empty()) {
      RETURN_IF_ERROR(join_mxfp4(all, t, blocks));
    } else if ((method == "fp8" || others) && !weight.empty() && is_a(t, "F8_E4M3")) {
      RETURN_IF_ERROR(join_fp8(all, t, weight, *how));
    } else if (method == "modelopt" && !weight.empty() && all.find(weight + ".weight_scale_2") != nullptr) {
      RETURN_IF_ERROR(join_nvfp4(all, t, weight, ".weight_scale_2", [](float factor) { return factor; }));
    } else if (method == "compressed-tensors" && !nibbles.empty()) {
      if (all.find(nibbles + ".weight_global_scale") == nullptr)
        return refuse(t,
                      "is packed by compressed-tensors in another format than nvfp4-pack-quantized and "
                      "float-quantized, which are supported");
      RETURN_IF_ERROR(
          join_nvfp4(all, t, nibbles, ".weight_global_scale", [](float divisor) { return 1.0f / divisor; }));
    } else if ((method == "gptq" || method == "awq") && !packed.empty()) {
      RETURN_IF_ERROR(join_int4(all, t, packed, *how, method == "awq"));
    }
  }
  return all.rest();
}

}  // namespace invar
