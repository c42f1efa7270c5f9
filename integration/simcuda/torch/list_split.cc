// Cutting the lists of one call and joining the returns of its parts.
#include "integration/simcuda/torch/list_split.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdlib>

#include "integration/simcuda/torch/cuda_operator.h"

namespace simcuda::ops {
namespace {

size_t GroupSize() {
  static const size_t size = [] {
    const char* text = std::getenv("SIMCUDA_FOREACH_GROUP");
    const long value = text == nullptr ? 1 : std::strtol(text, nullptr, 10);
    TORCH_CHECK(value >= 1 && value <= 4096, "SIMCUDA_FOREACH_GROUP=", text,
                ": a number from 1 to 4096 is accepted");
    return static_cast<size_t>(value);
  }();
  return size;
}

size_t ListLength(const OpFacts& facts, const c10::Stack& stack) {
  for (size_t i = stack.size() - facts.arguments.size(); i < stack.size(); ++i) {
    if (stack[i].isTensorList()) return stack[i].toTensorList().size();
  }
  return 0;
}

c10::IValue Cut(const c10::IValue& value, size_t length, size_t begin, size_t end) {
  if (value.isTensorList()) {
    const auto list = value.toTensorList();
    if (list.size() != length) return value;
    c10::List<at::Tensor> part;
    for (size_t i = begin; i < end; ++i) part.push_back(list.get(i));
    return part;
  }
  if (value.isDoubleList() && value.toDoubleList().size() == length) {
    const std::vector<double> all = value.toDoubleVector();
    return std::vector<double>(all.begin() + begin, all.begin() + end);
  }
  if (value.isIntList() || value.isBoolList() || value.isDoubleList() || !value.isList()) return value;
  const auto list = value.toList();
  if (list.size() != length) return value;
  c10::impl::GenericList part(list.elementType());
  for (size_t i = begin; i < end; ++i) part.push_back(list.get(i));
  return part;
}

// True when every list of tensors has the same length; otherwise the op itself must see the lists, to complain.
bool SameLengths(const OpFacts& facts, const c10::Stack& stack, size_t length) {
  for (size_t i = stack.size() - facts.arguments.size(); i < stack.size(); ++i) {
    if (!stack[i].isTensorList()) continue;
    const size_t found = stack[i].toTensorList().size();
    if (found != length && found != 0) return false;
  }
  return true;
}

}  // namespace

void CallSplit(const OpFacts& facts, c10::Stack* stack) {
  const size_t length = ListLength(facts, *stack);
  const size_t group = GroupSize();
  if (length <= group || !SameLengths(facts, *stack, length)) return CallAsLaunch(facts, stack);
  const size_t returns = facts.returned_argument.size();
  std::vector<c10::List<at::Tensor>> joined(returns);
  const size_t first = stack->size() - facts.arguments.size();
  for (size_t begin = 0; begin < length; begin += group) {
    const size_t end = std::min(begin + group, length);
    c10::Stack part;
    for (size_t i = first; i < stack->size(); ++i) part.push_back(Cut((*stack)[i], length, begin, end));
    CallAsLaunch(facts, &part);
    for (size_t r = 0; r < returns; ++r) {
      if (facts.returned_argument[r] == kNone)
        joined[r].append(part[part.size() - returns + r].toTensorList());
    }
  }
  c10::Stack results;
  for (size_t r = 0; r < returns; ++r) {
    const int argument = facts.returned_argument[r];
    results.push_back(argument == kNone ? c10::IValue(joined[r]) : (*stack)[first + argument]);
  }
  torch::jit::drop(*stack, facts.arguments.size());
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}

}  // namespace simcuda::ops
