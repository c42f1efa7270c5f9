// Running an operator on a stream's thread.
#include "integration/simcuda/torch/operator_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace simcuda::ops {
namespace {

std::string Text(const std::exception& error) {
  const auto* detailed = dynamic_cast<const c10::Error*>(&error);
  return detailed != nullptr ? detailed->what_without_backtrace() : error.what();
}

}  // namespace

std::optional<BrokenAssert> CallBody::Assert() {
  if (facts->device_assert == nullptr) return std::nullopt;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::AutoGradMode no_grad(false);
  return facts->device_assert(facts->handle, &stack);
}

void CallBody::Compute() {
  // Each stream thread takes PyTorch's thread count (OMP_NUM_THREADS, torch.set_num_threads) once.
  [[maybe_unused]] static thread_local const bool threads_set = (at::init_num_threads(), true);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::AutoGradMode no_grad(false);
  HostCall call{facts->handle, &stack, std::nullopt, facts->generator_argument};
  if (seed) call.generator = at::detail::createCPUGenerator(seed->Value());
  facts->host_form(call);
}

void WaitedCall::Run() {
  try {
    broken_ = body.Assert();
    body.Compute();
  } catch (c10::Error& error) {
    // PyTorch names the CPU kernel that lacks a dtype, which is seldom the op's name.
    if (Text(error).find("not implemented for") != std::string::npos) {
      error.add_context(body.facts->name + " cannot run on the stand-in GPU with this dtype");
    }
    error_ = std::current_exception();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void WaitedCall::RethrowError() const {
  if (error_) std::rethrow_exception(error_);
}

void PromisedCall::Run() {
  try {
    ComputeAndDeliver();
  } catch (const std::exception& error) {
    FailDevice(body.facts->name + ": " + Text(error));
  } catch (...) {
    FailDevice(body.facts->name + ": unknown exception");
  }
}

void PromisedCall::ComputeAndDeliver() {
  PlacementScope scope(&blocks);
  std::vector<c10::Storage> fresh;
  struct Clear {  // placed results must be gone before the scope ends, also after an exception
    c10::Stack& stack;
    std::vector<c10::Storage>& fresh;
    ~Clear() {
      stack.clear();
      fresh.clear();
    }
  };
  CallBody run = body;  // the stack becomes the returns
  Clear clear{run.stack, fresh};
  if (const auto broken = run.Assert()) return FailDeviceByAssert(broken->Line(body.facts->name));
  run.Compute();
  const Geometry found =
      DescribeReturns(run.stack, body.facts->returned_argument, body.argument_storages, &fresh);
  const std::string difference = Difference(*promise, found);
  TORCH_CHECK(difference.empty(), "the result is not what this signature gave before: ", difference);
  Deliver(fresh);
}

// Results that did not land in their own block are copied there. One may have landed in another's block (equal sizes,
// other order), so these leave their places before anything is written.
void PromisedCall::Deliver(const std::vector<c10::Storage>& fresh) {
  std::vector<std::pair<size_t, std::vector<char>>> moved;
  for (size_t i = 0; i < fresh.size(); ++i) {
    const auto* data = static_cast<const char*>(fresh[i].data());
    if (blocks[i].bytes == 0 || data == blocks[i].address) continue;
    const bool astray = std::any_of(blocks.begin(), blocks.end(),
                                    [&](const ResultBlock& block) { return block.address == data; });
    if (astray) moved.emplace_back(i, std::vector<char>(data, data + blocks[i].bytes));
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    const bool astray =
        std::any_of(moved.begin(), moved.end(), [&](const auto& entry) { return entry.first == i; });
    if (astray || blocks[i].bytes == 0 || fresh[i].data() == blocks[i].address) continue;
    std::memcpy(blocks[i].address, fresh[i].data(), blocks[i].bytes);
  }
  for (const auto& [i, bytes] : moved) std::memcpy(blocks[i].address, bytes.data(), bytes.size());
}

}  // namespace simcuda::ops
