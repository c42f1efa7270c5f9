#include "policy/estimate/optimizer_update.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

// The limits of a launch over lists: chunks of 65,536 elements, and tensors of each list
// (multi_tensor_apply.cuh: depth_to_max_blocks, depth_to_max_tensors).
constexpr uint64_t kElements = uint64_t{320} * 65536;
constexpr size_t kTensorsByLists[] = {110, 110, 64, 48, 36, 30};

using Tensors = std::vector<Tensor>;

Tensors Like(DeviceTape* tape, const Tensors& tensors, Term term) {
  Tensors made;
  for (const Tensor& tensor : tensors) made.push_back(tape->NewAs(tensor.elements, tensor.type, term));
  return made;
}

// Launches over lists of tensors, with the same numbers of `read` and `written` in each launch. A tensor that
// needs several launches is in each of them with its part.
void OverLists(DeviceTape* tape, const char* name, const std::vector<const Tensors*>& read,
               const std::vector<const Tensors*>& written) {
  std::vector<const Tensors*> lists = read;
  for (const Tensors* list : written) {
    if (std::find(lists.begin(), lists.end(), list) == lists.end()) lists.push_back(list);
  }
  const size_t most = kTensorsByLists[std::min<size_t>(lists.size(), 5)];
  std::vector<Tensor> inputs, outputs;
  uint64_t elements = 0;
  size_t tensors = 0;
  const auto flush = [&] {
    if (tensors > 0) tape->Launch(name, inputs, outputs);
    inputs.clear();
    outputs.clear();
    elements = tensors = 0;
  };
  for (size_t i = 0; i < lists[0]->size(); ++i) {
    for (uint64_t left = (*lists[0])[i].elements; left > 0;) {
      const uint64_t part = std::min(left, kElements - elements);
      for (const auto& [from, to] : {std::pair{&read, &inputs}, std::pair{&written, &outputs}}) {
        for (const Tensors* list : *from) {
          to->push_back((*list)[i]);
          to->back().elements = part;
        }
      }
      left -= part;
      elements += part;
      if (++tensors == most || elements == kElements) flush();
    }
  }
  flush();
}

// The lists of trained parameters.
struct Lists {
  Tensors weights, gradients, first, second;
};

Lists ListsOf(DeviceTape* tape, size_t states, std::deque<Parameter>* parameters) {
  Lists lists;
  for (Parameter& parameter : *parameters) {
    if (!parameter.gradient) continue;
    if (parameter.state.empty()) {
      for (size_t s = 0; s < states; ++s) {
        parameter.state.push_back(
            tape->NewAs(parameter.rows * parameter.columns, parameter.value.tensor.type, Term::kOptimizer));
        tape->Launch("zeros", {}, {parameter.state.back()});
      }
    }
    lists.weights.push_back(parameter.value.tensor);
    lists.gradients.push_back(parameter.gradient);
    if (states > 0) lists.first.push_back(parameter.state[0]);
    if (states > 1) lists.second.push_back(parameter.state[1]);
  }
  return lists;
}

void AdamWOverLists(DeviceTape* tape, const Lists& lists) {
  OverLists(tape, "foreach_mul_", {&lists.weights}, {&lists.weights});  // the decay
  OverLists(tape, "foreach_lerp_", {&lists.first, &lists.gradients}, {&lists.first});
  OverLists(tape, "foreach_mul_", {&lists.second}, {&lists.second});
  OverLists(tape, "foreach_addcmul_", {&lists.second, &lists.gradients}, {&lists.second});
  const Tensors roots = Like(tape, lists.second, Term::kOptimizerTemporaries);
  OverLists(tape, "foreach_sqrt", {&lists.second}, {&roots});
  OverLists(tape, "foreach_div_", {&roots}, {&roots});
  OverLists(tape, "foreach_add_", {&roots}, {&roots});
  OverLists(tape, "foreach_addcdiv_", {&lists.weights, &lists.first, &roots}, {&lists.weights});
}

void AdamWOneByOne(DeviceTape* tape, const Lists& lists) {
  for (size_t i = 0; i < lists.weights.size(); ++i) {
    const Tensor &weight = lists.weights[i], &gradient = lists.gradients[i];
    const Tensor &first = lists.first[i], &second = lists.second[i];
    tape->Launch("mul_", {weight}, {weight});
    tape->Launch("lerp_", {first, gradient}, {first});
    tape->Launch("mul_", {second}, {second});
    tape->Launch("addcmul_", {second, gradient}, {second});
    Tensor root = tape->NewAs(second.elements, second.type, Term::kOptimizerTemporaries);
    tape->Launch("sqrt", {second}, {root});
    const Tensor divided = tape->NewAs(second.elements, second.type, Term::kOptimizerTemporaries);
    tape->Launch("div", {root}, {divided});
    root = {};
    tape->Launch("add_", {divided}, {divided});
    tape->Launch("addcdiv_", {weight, first, divided}, {weight});
  }
}

}  // namespace

const char kOptimizerNames[] = "sgd, sgd-momentum, adamw, adamw-fused, adamw-loop";

absl::StatusOr<Optimizer> ParseOptimizer(absl::string_view name) {
  if (name == "sgd") return Optimizer::kSgd;
  if (name == "sgd-momentum") return Optimizer::kSgdMomentum;
  if (name == "adamw") return Optimizer::kAdamW;
  if (name == "adamw-fused") return Optimizer::kAdamWFused;
  if (name == "adamw-loop") return Optimizer::kAdamWLoop;
  return absl::InvalidArgumentError(
      absl::StrCat("--optimizer=", name, " is invalid; expected: ", kOptimizerNames));
}

void Update(DeviceTape* tape, Optimizer optimizer, std::deque<Parameter>* parameters) {
  const size_t states = optimizer == Optimizer::kSgd ? 0 : optimizer == Optimizer::kSgdMomentum ? 1 : 2;
  const Lists lists = ListsOf(tape, states, parameters);
  if (lists.weights.empty()) return;
  switch (optimizer) {
    case Optimizer::kSgdMomentum:
      OverLists(tape, "foreach_mul_", {&lists.first}, {&lists.first});
      OverLists(tape, "foreach_add_", {&lists.first, &lists.gradients}, {&lists.first});
      OverLists(tape, "foreach_add_", {&lists.weights, &lists.first}, {&lists.weights});
      break;
    case Optimizer::kSgd:
      OverLists(tape, "foreach_add_", {&lists.weights, &lists.gradients}, {&lists.weights});
      break;
    case Optimizer::kAdamW: AdamWOverLists(tape, lists); break;
    case Optimizer::kAdamWLoop: AdamWOneByOne(tape, lists); break;
    case Optimizer::kAdamWFused:
      OverLists(tape, "fused_adamw_", {&lists.weights, &lists.gradients, &lists.first, &lists.second},
                {&lists.weights, &lists.first, &lists.second});
      break;
  }
}

void ClipGradients(DeviceTape* tape, std::deque<Parameter>* parameters) {
  Tensors gradients;
  for (const Parameter& parameter : *parameters) {
    if (parameter.gradient) gradients.push_back(parameter.gradient);
  }
  if (gradients.empty()) return;
  OverLists(tape, "foreach_norm", {&gradients}, {});
  OverLists(tape, "foreach_mul_", {&gradients}, {&gradients});
}

}  // namespace spillway::policy
