#include "backends/cpu/routing.h"

#include <cstring>
#include <utility>

namespace invar {
namespace {

// The first `count` entries stay sorted: keys descending, among equal ones ids ascending. A key that is NaN
// moves nobody.
void insert(float key, int32_t id, int32_t count, float* keys, int32_t* ids) {
  int32_t at = count;
  for (; at > 0 && (key > keys[at - 1] || (key == keys[at - 1] && id < ids[at - 1])); at--) {
    keys[at] = keys[at - 1];
    ids[at] = ids[at - 1];
  }
  keys[at] = key;
  ids[at] = id;
}

}  // namespace

void route(const Router& router, const KernelTable& kernels, const float* scores, float* probabilities,
           int32_t* ids, float* weights, uint8_t* fault) {
  const ExpertsAttr& attr = router.attr;
  if (!kernels.rows.all_finite(scores, router.experts)) *fault = 1;
  if (attr.routing == Routing::kSoftmax) kernels.rows.softmax(scores, router.experts, probabilities);
  if (attr.routing == Routing::kSigmoid)
    kernels.unary[size_t(Unary::kSigmoid)](scores, router.experts, probabilities);
  if (attr.routing == Routing::kSoftmaxOfChosen)
    std::memcpy(probabilities, scores, size_t(router.experts) * sizeof(float));

  // Here the weights are the keys of the choice.
  for (int32_t e = 0; e < router.experts; e++) {
    const float key = router.correction == nullptr ? scores[e] : probabilities[e] + router.correction[e];
    if (e < attr.chosen) {
      insert(key, e, e, weights, ids);
    } else if (key > weights[attr.chosen - 1]) {
      insert(key, e, attr.chosen - 1, weights, ids);
    }
  }

  for (int32_t i = 0; i < attr.chosen; i++)
    weights[i] = probabilities[ids[i]];
  if (attr.routing == Routing::kSoftmaxOfChosen) kernels.rows.softmax(weights, attr.chosen, weights);
  if (attr.renormalize) {
    float sum = 0;
    for (int32_t i = 0; i < attr.chosen; i++)
      sum = sum + weights[i];
    sum = sum + attr.sum_floor;
    for (int32_t i = 0; i < attr.chosen; i++)
      weights[i] = weights[i] / sum;
  }
  for (int32_t i = 0; i < attr.chosen; i++) {
    weights[i] = weights[i] * attr.scale;
    if (router.expert_scale != nullptr) weights[i] = weights[i] * router.expert_scale[ids[i]];
  }
  for (int32_t i = 1; i < attr.chosen; i++)
    insert(weights[i], ids[i], i, weights, ids);
}

}  // namespace invar
