// The common parts of the tests of operations, layers and attention: a tape with its graph, weights, and the
// results of one forward and backward pass.

#ifndef SPILLWAY_TESTS_POLICY_ESTIMATE_ESTIMATE_FIXTURE_H_
#define SPILLWAY_TESTS_POLICY_ESTIMATE_ESTIMATE_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "policy/estimate/layers.h"

namespace spillway::policy {

inline constexpr uint64_t kRows = 4096;  // of activations

class EstimateFixture : public ::testing::Test {
 protected:
  explicit EstimateFixture(bool autocast = false) : operators_(&tape_, &graph_, autocast) {}

  // An activation that a gradient is asked for.
  Variable Input(uint64_t width) {
    Parameter* const parameter = weights_.New(kRows, width);
    return parameter->value;
  }
  void Backward(const Variable& y) {
    Tensor dy = tape_.New(y.tensor.elements, y.tensor.type);
    graph_.Backward(y, std::move(dy));
  }
  static std::vector<std::string> NamesOf(const TapeResult& result) {
    std::vector<std::string> names;
    for (const WorkloadKernel& kernel : result.workload.kernels) names.push_back(kernel.name);
    return names;
  }
  static double OperationsOf(const TapeResult& result) {
    double operations = 0;
    for (const LaunchCost& cost : result.costs) operations += cost.operations;
    return operations;
  }

  DeviceTape tape_;
  Autograd graph_{&tape_};
  Operators operators_;
  Weights weights_{&tape_, &graph_, NumberType::kFp32, {}};
};

class AutocastFixture : public EstimateFixture {
 protected:
  AutocastFixture() : EstimateFixture(true) {}
};

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_ESTIMATE_ESTIMATE_FIXTURE_H_
