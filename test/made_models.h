#pragma once
// Files that other converters wrote, made from stored oracles when a test first asks for them: the same
// numbers under other names. "made/NAME" is their path in oracle_models.h; they live in a temporary folder of
// the process.

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "format/gguf.h"
#include "format/model_source.h"
#include "format/test_files.h"
#include "golden.h"

namespace invar {

class MadeModels {
 public:
  // data: the folder of the stored oracles.
  explicit MadeModels(std::string data) : data_(std::move(data)) {}

  std::string path(const std::string& name) {
    const std::string path = folder_.path(name);
    if (!std::filesystem::exists(path)) write_file(path, contents(name));
    return path;
  }

 private:
  static constexpr uint32_t kF32 = 0, kBf16 = 30, kFloatElement = 6, kBoolElement = 7;

  std::vector<std::byte> contents(const std::string& name) const {
    if (name == "mixtral-separate.gguf") return separate_experts(data_ + "gguf/lossless/mixtral.gguf");
    if (name == "gemma3n-text.gguf") return gemma3n(data_ + "models/gemma3n-text");
    throw std::runtime_error("no model is made by the name " + name);
  }

  static std::vector<uint64_t> dims_of(std::vector<int64_t> shape) { return {shape.rbegin(), shape.rend()}; }
  static Bytes bytes_of(std::span<const std::byte> data) {
    Bytes out;
    out.get().assign(data.begin(), data.end());
    return out;
  }

  // As converters of 2023 wrote Mixtral: every expert has tensors of its own.
  static std::vector<std::byte> separate_experts(const std::string& path) {
    const auto map = MappedFile::open(path);
    const auto file = map.ok() ? GgufFile::parse(map->bytes(), path) : Result<GgufFile>(map.status());
    if (!file.ok()) throw std::runtime_error(file.status().message());
    GgufWriter w;
    for (const GgufEntry& e : file->entries()) {
      Bytes value;
      if (e.type == GgufType::kArray) value.put(static_cast<uint32_t>(e.element)).put(e.count);
      if (e.type == GgufType::kString) value.put<uint64_t>(e.bytes.size());
      w.key(e.key, static_cast<uint32_t>(e.type), value.append(bytes_of(e.bytes)));
    }
    for (const GgufTensor& t : file->tensors()) {
      const uint32_t type = t.type->name == std::string_view("F32") ? kF32 : kBf16;
      const std::string name(t.name);
      const size_t stack = name.find("_exps.weight");
      if (stack == std::string::npos) {
        w.tensor(name, dims_of(t.shape), type, bytes_of(t.data));
        continue;
      }
      const size_t bytes = t.data.size() / static_cast<size_t>(t.shape[0]);
      for (size_t e = 0; e < static_cast<size_t>(t.shape[0]); ++e)
        w.tensor(name.substr(0, stack) + "." + std::to_string(e) + ".weight",
                 dims_of({t.shape[1], t.shape[2]}), type, bytes_of(t.data.subspan(e * bytes, bytes)));
    }
    return w.build();
  }

  static std::string gemma3n_name(const std::string& name) {
    static const std::map<std::string, std::string> kTop = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
        {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
        {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
    static const std::map<std::string, std::string> kLayer = {
        {"input_layernorm.weight", "attn_norm"},
        {"self_attn.q_proj.weight", "attn_q"},
        {"self_attn.k_proj.weight", "attn_k"},
        {"self_attn.v_proj.weight", "attn_v"},
        {"self_attn.o_proj.weight", "attn_output"},
        {"self_attn.q_norm.weight", "attn_q_norm"},
        {"self_attn.k_norm.weight", "attn_k_norm"},
        {"post_attention_layernorm.weight", "post_attention_norm"},
        {"pre_feedforward_layernorm.weight", "ffn_norm"},
        {"post_feedforward_layernorm.weight", "post_ffw_norm"},
        {"mlp.gate_proj.weight", "ffn_gate"},
        {"mlp.up_proj.weight", "ffn_up"},
        {"mlp.down_proj.weight", "ffn_down"},
        {"per_layer_input_gate.weight", "inp_gate"},
        {"per_layer_projection.weight", "proj"},
        {"post_per_layer_input_norm.weight", "post_norm"},
        {"altup.correction_coefs.weight", "altup_correct_coef"},
        {"altup.prediction_coefs.weight", "altup_predict_coef"},
        {"altup.correct_output_scale", "altup_correct_scale"},
        {"altup.modality_router.weight", "altup_router"},
        {"altup.router_norm.weight", "altup_router_norm"},
        {"laurel.linear_left.weight", "laurel_l"},
        {"laurel.linear_right.weight", "laurel_r"},
        {"laurel.post_laurel_norm.weight", "laurel_post_norm"}};
    if (const auto top = kTop.find(name); top != kTop.end()) return top->second;
    const size_t layer = std::string_view("model.layers.").size(), dot = name.find('.', layer);
    return "blk." + name.substr(layer, dot - layer) + "." + kLayer.at(name.substr(dot + 1)) + ".weight";
  }

  static GgufWriter gemma3n_keys() {
    Bytes windowed, deviations;
    for (const int l : {0, 1, 2, 3, 4, 5, 6}) {
      windowed.put<uint8_t>(l != 2 && l != 6);
      deviations.put(l < 2 ? 1.6448536f : -std::numeric_limits<float>::infinity());
    }
    GgufWriter w;
    const std::string a = "gemma3n.";
    w.string("general.architecture", "gemma3n").u32(a + "block_count", 7).u32(a + "context_length", 512);
    w.u32(a + "embedding_length", 64).u32(a + "feed_forward_length", 96);
    w.u32(a + "attention.head_count", 4).u32(a + "attention.head_count_kv", 2);
    w.u32(a + "attention.key_length", 16).u32(a + "attention.value_length", 16);
    w.f32(a + "attention.layer_norm_rms_epsilon", 1e-6f).f32(a + "rope.freq_base", 1e6f);
    w.u32(a + "attention.sliding_window", 12).u32(a + "attention.shared_kv_layers", 3);
    w.array(a + "attention.sliding_window_pattern", kBoolElement, 7, windowed);
    w.f32(a + "final_logit_softcapping", 8).u32(a + "embedding_length_per_layer_input", 32);
    w.u32(a + "altup.num_inputs", 4).u32(a + "altup.active_idx", 0);
    w.array(a + "activation_sparsity_scale", kFloatElement, 7, deviations);
    return w;
  }

  // Its streams' matrices are stacked, its vectors widened to F32.
  static std::vector<std::byte> gemma3n(const std::string& path) {
    const auto source = ModelSource::open(path);
    if (!source.ok()) throw std::runtime_error(source.status().message());
    GgufWriter w = gemma3n_keys();
    for (const SourceTensor& t : (*source)->tensors()) {
      if (t.name.starts_with("model.altup_")) continue;
      if (t.shape.size() == 1) {
        Bytes wide;
        for (size_t i = 0; i < t.data.size(); ++i)
          wide.fill(i % 2 == 0 ? 2 : 0, 0).fill(1, static_cast<uint8_t>(t.data[i]));
        w.tensor(gemma3n_name(t.name), dims_of(t.shape), kF32, wide);
      } else {
        w.tensor(gemma3n_name(t.name), dims_of(t.shape), kBf16, bytes_of(t.data));
      }
    }
    for (const auto& [stack, name] :
         {std::pair("model.altup_projections.", "altup_proj.weight"),
          std::pair("model.altup_unembed_projections.", "altup_unembd_proj.weight")}) {
      Bytes all;
      for (const char* i : {"0", "1", "2"})
        all.append(bytes_of((*source)->find(std::string(stack) + i + ".weight")->data));
      w.tensor(name, {64, 64, 3}, kBf16, all);
    }
    return w.build();
  }

  std::string data_;
  TemporaryFolder folder_;
};

// Where a model of oracle_models.h is.
inline std::string model_path(const std::string& path) {
  static MadeModels made(oracle_path(""));
  constexpr std::string_view kMade = "made/";
  return path.starts_with(kMade) ? made.path(path.substr(kMade.size())) : oracle_path(path);
}

}  // namespace invar
