#include "policy/estimate/autograd.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::policy {

std::shared_ptr<Node> Autograd::NewNode(const std::vector<Variable>& inputs, uint32_t outputs,
                                        BackwardFunction backward, Made made) {
  const bool needed =
      std::any_of(inputs.begin(), inputs.end(), [](const Variable& v) { return v.NeedsGradient(); });
  if (!enabled_ || (!needed && made == Made::kWhereNeeded)) return nullptr;
  auto node = std::make_shared<Node>();
  node->sequence = ++sequence_;
  node->term = tape_->term();
  for (const Variable& input : inputs) {
    node->inputs.push_back(input.node);
    node->outputs.push_back(input.output);
    node->types.push_back(input.tensor.type);
  }
  node->gradients.resize(outputs);
  node->backward = std::move(backward);
  return node;
}

std::shared_ptr<Node> Autograd::NewLeaf(Tensor* gradient, uint32_t key) {
  auto node = std::make_shared<Node>();
  node->gradients.resize(1);
  node->leaf = gradient;
  node->key = key;
  return node;
}

// Adds a gradient up. The first one is taken over if nobody else has it, as PyTorch does.
void Autograd::Gather(Node* node, uint32_t output, Tensor gradient) {
  Tensor& there = node->leaf != nullptr ? *node->leaf : node->gradients[output];
  if (!there) {
    if (node->leaf != nullptr && gradient.storage.use_count() > 1) {  // somebody else reads it: a copy
      Tensor copy = tape_->New(gradient.elements, gradient.type);
      tape_->Launch("clone", {gradient}, {copy});
      gradient = std::move(copy);
    }
    there = std::move(gradient);
    if (node->leaf != nullptr && node->key != kNoKey) tape_->Rename(there, Term::kGradients, node->key);
    return;
  }
  if (node->leaf != nullptr || there.storage.use_count() == 1) {
    tape_->Launch("add_", {there, gradient}, {there});
    return;
  }
  Tensor sum = tape_->New(there.elements, there.type);
  tape_->Launch("add", {there, gradient}, {sum});
  there = std::move(sum);
}

void Autograd::Backward(const Variable& result, Tensor gradient) {
  // The number of gradients that each node waits for.
  std::map<Node*, uint32_t> awaited;
  std::vector<Node*> found = {result.node.get()};
  awaited[result.node.get()] = 0;
  while (!found.empty()) {
    Node* const node = found.back();
    found.pop_back();
    for (const auto& input : node->inputs) {
      if (input != nullptr && awaited[input.get()]++ == 0) found.push_back(input.get());
    }
  }
  const bool was_enabled = std::exchange(enabled_, false);
  std::map<uint64_t, std::shared_ptr<Node>> ready = {{result.node->sequence, result.node}};
  result.node->gradients[result.output] = std::move(gradient);
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = std::prev(ready.end())->second;  // the latest operation
    ready.erase(std::prev(ready.end()));
    const Term before = tape_->SetTerm(node->term);
    std::vector<Tensor> gradients(node->gradients.size());
    gradients.swap(node->gradients);
    std::vector<Tensor> results = node->backward(gradients);
    node->backward = nullptr;  // frees what was kept
    gradients.clear();
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const std::shared_ptr<Node>& input = node->inputs[i];
      if (input == nullptr) continue;
      if (i < results.size() && results[i]) {
        Tensor one = std::move(results[i]);
        if (one.type != node->types[i]) {
          Tensor converted = tape_->New(one.elements, node->types[i]);
          tape_->Launch("to_copy", {one}, {converted});
          one = std::move(converted);
        }
        Gather(input.get(), node->outputs[i], std::move(one));
      }
      if (--awaited[input.get()] == 0 && input->leaf == nullptr) ready[input->sequence] = input;
    }
    node->inputs.clear();  // frees a chain of thousands of nodes one by one
    tape_->SetTerm(before);
  }
  enabled_ = was_enabled;
}

}  // namespace spillway::policy
