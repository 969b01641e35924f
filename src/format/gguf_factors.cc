#include "format/gguf_factors.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "base/quote.h"
#include "format/codec_parts.h"
#include "format/source_planes.h"

namespace invar {
namespace {

constexpr std::string_view kWeight = ".weight", kScale = ".scale", kInputScale = ".input_scale";

// Joins factors, one or one for each of a stack, to the matrix.
Status join(SourceTensor& matrix, const SourceTensor& factors) {
  const auto n = static_cast<int64_t>(factors.data.size() / 4);
  const bool stack = matrix.shape.size() == 3;
  if (matrix.shape.size() < 2 || factors.type->name != std::string_view("F32") ||
      (n != 1 && !(stack && n == matrix.shape[0])))
    return corrupt(fmt::format("tensor {} has {} values of type {}; the factors of {} are one in F32{}",
                               quote(factors.stored_name), n, factors.type->name, quote(matrix.stored_name),
                               stack ? ", or one per expert" : ""));
  SourcePlanes planes;
  planes.data = matrix.data;
  planes.cols = matrix.shape.back();
  planes.group = 16;
  planes.rows = 1;
  for (size_t i = 0; i + 1 < matrix.shape.size(); ++i)
    planes.rows *= matrix.shape[i];
  for (int64_t i = 0; i < n; ++i)
    planes.factors.push_back(bits_float(u32_at(bytes_of(factors.data.data()) + 4 * i)));
  matrix.type = weight_type_by_name("NVFP4_SCALED");
  matrix.planes = std::make_shared<const SourcePlanes>(std::move(planes));
  return {};
}

}  // namespace

Result<std::vector<SourceTensor>> join_gguf_factors(std::string_view architecture,
                                                    std::vector<SourceTensor> tensors) {
  std::unordered_map<std::string, size_t> matrices;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].stored_name;
    if (name.ends_with(kWeight) && tensors[i].type->name == std::string_view("NVFP4"))
      matrices.emplace(name.substr(0, name.size() - kWeight.size()), i);
  }
  if (matrices.empty()) return tensors;
  const auto matrix_of = [&](const std::string& name, std::string_view suffix) -> SourceTensor* {
    if (!name.ends_with(suffix)) return nullptr;
    const auto found = matrices.find(name.substr(0, name.size() - suffix.size()));
    return found == matrices.end() ? nullptr : &tensors[found->second];
  };
  std::vector<bool> taken(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].stored_name;
    // That is the factor of each expert's result in this family, whatever the type of its matrix.
    if (architecture == "gemma4" && name.ends_with("ffn_down_exps.scale")) continue;
    SourceTensor* matrix = matrix_of(name, kScale);
    if (matrix != nullptr) RETURN_IF_ERROR(join(*matrix, tensors[i]));
    taken[i] = matrix != nullptr || matrix_of(name, kInputScale) != nullptr;
  }
  std::vector<SourceTensor> rest;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!taken[i]) rest.push_back(std::move(tensors[i]));
  return rest;
}

}  // namespace invar
