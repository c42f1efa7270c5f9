// One queued operator: everything the stream thread needs to run an op, and nothing that belongs to the
// caller. It has CPU aliases over raw addresses, plain values and the promised geometry; no CUDA storage,
// Python object or GIL.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OPERATOR_CALL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OPERATOR_CALL_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/simcuda/torch/launch.h"
#include "integration/simcuda/torch/op_facts.h"
#include "integration/simcuda/torch/placement.h"
#include "integration/simcuda/torch/random.h"

namespace simcuda::ops {

// The part that both kinds of call run.
struct CallBody {
  const OpFacts* facts = nullptr;
  c10::Stack stack;  // the arguments; afterwards the returns
  std::vector<c10::Storage> argument_storages;
  std::optional<CallSeed> seed;

  // Returns the assertion of the CUDA kernel that does not hold; the arguments are harmless ones from then
  // on.
  std::optional<BrokenAssert> Assert();
  // Computes on the current thread, with this thread's allocations of `blocks`' sizes placed there. Throws
  // the kernels' exceptions.
  void Compute();
};

// A call whose caller waits: results and errors stay in it. A broken assert is kept as well: a GPU's caller
// would know nothing of it yet, so the device fails only when the call has its results (FailingCall).
class WaitedCall final : public QueuedWork {
 public:
  CallBody body;

  void Run() override;
  void RethrowError() const;
  const std::optional<BrokenAssert>& broken() const { return broken_; }

 private:
  std::exception_ptr error_;
  std::optional<BrokenAssert> broken_;
};

// Fails the device as the kernel of `op` does if its assert is broken.
class FailingCall final : public QueuedWork {
 public:
  FailingCall(std::string op, BrokenAssert broken) : op_(std::move(op)), broken_(std::move(broken)) {}
  void Run() override { FailDeviceByAssert(broken_.Line(op_)); }

 private:
  const std::string op_;
  const BrokenAssert broken_;
};

// A call that nobody waits for: its results go to `blocks` as `promise` describes, its errors fail the
// device. A captured call runs at each replay, each time from the same arguments.
class PromisedCall final : public QueuedWork {
 public:
  CallBody body;
  std::shared_ptr<const Geometry> promise;
  std::vector<ResultBlock> blocks;  // one per fresh storage of the promise

  void Run() override;

 private:
  void ComputeAndDeliver();
  void Deliver(const std::vector<c10::Storage>& fresh);
};

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OPERATOR_CALL_H_
