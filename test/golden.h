#pragma once
// Reading of the stored oracles (test/data/oracles): token ids, float64 logits rounded to float32, greedy
// runs and the distances of other engines. A missing or broken file throws, which fails the test.

#include <boost/json.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace invar {

inline std::string oracle_path(const std::string& name) {
  return std::string(INVAR_TEST_DATA) + "/oracles/" + name;
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot open test data");
  return {std::istreambuf_iterator<char>(in), {}};
}

inline boost::json::value read_json(const std::string& path) {
  return boost::json::parse(file_text(path));
}

template <class T>
std::vector<T> number_list(const boost::json::value& v) {
  std::vector<T> out;
  for (const auto& x : v.as_array())
    out.push_back(x.to_number<T>());
  return out;
}

// The float32 arrays of a safetensors file.
inline std::map<std::string, std::vector<float>> read_float_arrays(const std::string& path) {
  const std::string bytes = file_text(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::map<std::string, std::vector<float>> arrays;
  const boost::json::value directory = boost::json::parse(bytes.substr(8, header));
  for (const auto& [name, info] : directory.as_object()) {
    if (name == "__metadata__" || info.at("dtype").as_string() != "F32") continue;
    const auto range = number_list<uint64_t>(info.at("data_offsets"));
    std::vector<float>& a = arrays[std::string(name)];
    a.resize((range[1] - range[0]) / sizeof(float));
    if (8 + header + range[1] > bytes.size()) throw std::runtime_error(path + ": too short");
    std::memcpy(a.data(), bytes.data() + 8 + header + range[0], a.size() * sizeof(float));
  }
  return arrays;
}

struct GoldenSequence {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;     // that logits are stored for
  std::vector<float> logits;          // [positions, vocab]
  std::vector<int32_t> greedy;        // tokens of a greedy run; may be empty
  std::vector<double> greedy_margin;  // largest minus second largest logit at each of its steps
  double float32_max_abs = 0;         // a plain float32 engine against float64; 0 if not stored
  double bfloat16_max_kl = 0;         // a bfloat16 engine against float64; 0 if not stored
  double peer_max_abs = 0,
         peer_max_kl = 0;  // llama.cpp or mlx-lm on the same quantized file; 0 if not stored
};

// stem + ".json" and ".safetensors".
inline std::vector<GoldenSequence> read_golden(const std::string& stem) {
  const boost::json::value json = read_json(stem + ".json");
  const auto arrays = read_float_arrays(stem + ".safetensors");
  std::vector<GoldenSequence> out;
  for (const auto& s : json.at("sequences").as_array()) {
    GoldenSequence g;
    g.ids = number_list<int32_t>(s.at("ids"));
    g.positions = number_list<int32_t>(s.at("positions"));
    g.logits = arrays.at("s" + std::to_string(out.size()) + ".logits");
    const auto& object = s.as_object();
    if (object.contains("greedy16")) {
      g.greedy = number_list<int32_t>(s.at("greedy16"));
      g.greedy_margin = number_list<double>(s.at("greedy16_margin"));
    }
    if (const auto* d = object.if_contains("hf_float32_vs_f64"))
      g.float32_max_abs = d->at("max_abs").to_number<double>();
    if (const auto* b = object.if_contains("hf_bfloat16_vs_f64"))
      g.bfloat16_max_kl = b->at("max_kl").to_number<double>();
    const auto* d = object.if_contains("llama_cpp_vs_f64");
    if (d == nullptr) d = object.if_contains("mlx_stored_dtype_vs_ref");
    if (d == nullptr) d = object.if_contains("int8_activations_vs_f64");
    if (d != nullptr) {
      g.peer_max_abs = d->at("max_abs").to_number<double>();
      g.peer_max_kl = d->at("max_kl").to_number<double>();
    }
    out.push_back(std::move(g));
  }
  return out;
}

}  // namespace invar
