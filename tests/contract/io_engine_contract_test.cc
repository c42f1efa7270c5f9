// The engines that keep the contract: the product's two, each also as a modeled disk, and the tests' two.

#include "tests/contract/io_engine_contract.h"

#include "io/engine/model_engine.h"
#include "io/engine/thread_engine.h"
#include "io/engine/uring_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"

namespace spillway::io {
namespace {

std::unique_ptr<IoEngine> Threads(int fd, size_t capacity) {
  return *MakeThreadEngine({fd}, {.threads = 4, .capacity = capacity});
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

// Slow enough that results have to be kept back: 64 KiB take 0.3 ms to write.
std::unique_ptr<IoEngine> Modelled(std::unique_ptr<IoEngine> inner) {
  return MakeModelEngine(
      std::move(inner),
      {.read_bytes_per_second = 4e8, .write_bytes_per_second = 2e8, .latency_nanos = 80'000});
}

std::unique_ptr<IoEngine> ModelledThreads(int fd, size_t capacity) { return Modelled(Threads(fd, capacity)); }
std::unique_ptr<IoEngine> ModelledUring(int fd, size_t capacity) { return Modelled(Uring(fd, capacity)); }

bool UringWorks() { return MakeUringEngine({STDERR_FILENO}, 1).ok(); }

std::vector<EngineMaker> Makers() {
  std::vector<EngineMaker> makers = {
      {"Threads", Threads}, {"Memory", Memory}, {"Faulty", Faulty}, {"ModelledThreads", ModelledThreads}};
  if (UringWorks()) {
    makers.push_back({"Uring", Uring});
    makers.push_back({"ModelledUring", ModelledUring});
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineContract, ::testing::ValuesIn(Makers()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace spillway::io
