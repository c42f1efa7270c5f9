// The engines that keep the contract: the product's two and the tests' two.

#include "tests/contract/io_engine_contract.h"

#include "io/thread_engine.h"
#include "io/uring_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"

namespace spillway::io {
namespace {

std::unique_ptr<IoEngine> Threads(int fd, size_t capacity) {
  return MakeThreadEngine({fd}, {.threads = 4, .capacity = capacity});
}

std::unique_ptr<IoEngine> Uring(int fd, size_t capacity) { return MakeUringEngine({fd}, capacity).value(); }

std::unique_ptr<IoEngine> Memory(int, size_t capacity) {
  return MakeMemoryEngine({.capacity = capacity, .latency = std::chrono::microseconds(50)});
}

std::unique_ptr<IoEngine> Faulty(int fd, size_t capacity) {
  FaultPlan plan;
  plan.reorder = true;
  return MakeFaultyEngine(Threads(fd, capacity), plan);
}

bool UringWorks() { return MakeUringEngine({STDERR_FILENO}, 1).ok(); }

std::vector<EngineMaker> Makers() {
  std::vector<EngineMaker> makers = {{"Threads", Threads}, {"Memory", Memory}, {"Faulty", Faulty}};
  if (UringWorks()) makers.push_back({"Uring", Uring});
  return makers;
}

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineContract, ::testing::ValuesIn(Makers()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace spillway::io
