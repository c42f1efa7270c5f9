// Walking the dispatcher's ops and registering one boxed function for each that CUDA has a kernel for.
#include "integration/simcuda/torch/registration.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "integration/simcuda/torch/copy.h"
#include "integration/simcuda/torch/cuda_operator.h"
#include "integration/simcuda/torch/launch.h"
#include "integration/simcuda/torch/list_split.h"
#include "integration/simcuda/torch/op_facts.h"
#include "integration/simcuda/torch/placement.h"

namespace simcuda::ops {
namespace {

// The dispatcher's object for one op: its facts, and which way its calls take.
class Operator final : public c10::OperatorKernel {
 public:
  explicit Operator(const c10::OperatorHandle& op) : facts_(op), call_(ChooseCall(facts_)) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack* stack) {
    call_(facts_, stack);
  }

 private:
  using Call = void (*)(const OpFacts& facts, c10::Stack* stack);

  static Call ChooseCall(const OpFacts& facts) {
    if (facts.name == "aten::copy_") return &CallCopy;
    return facts.splits_lists ? &CallSplit : &CallAsLaunch;
  }

  OpFacts facts_;
  Call call_;
};

class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

bool WantsFunction(const c10::OperatorHandle& op) {
  if (IsAdded(op.operator_name())) return true;
  return op.hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !IsLeftAsItIs(op);
}

void RegisterAll() {
  NoWarnings quiet;  // each registration replaces a kernel, on purpose
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  auto* kept =
      new std::vector<c10::RegistrationHandleRAII>();  // never taken back: tensors outlive static destructors
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !WantsFunction(*op)) continue;
    kept->push_back(
        dispatcher.registerImpl(name, c10::DispatchKey::CUDA,
                                c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Operator>(*op)),
                                std::nullopt, nullptr, "simcuda"));
  }
}

// Turns off the forms that only a GPU's libraries have, so that PyTorch takes those that are made of other
// ops.
void TurnOffLibraries() {
  at::Context& context = at::globalContext();
  context.setUserEnabledCuDNN(false);
  context.setSDPUseFlash(false);
  context.setSDPUseMemEfficient(false);
  context.setSDPUseCuDNN(false);
}

pid_t started_in = 0;  // set once, before any fork that could matter

// Queued operators must not run after the destructors of the libraries that they call. On a thread of its own: at exit
// this thread's thread-local variables, those of the driver included, are destroyed already.
void FinishQueuedWork() {
  if (::getpid() != started_in) return;  // a forked child has queued nothing, and may not ask the driver
  std::thread([] {
    const int devices = c10::cuda::device_count();
    for (int device = 0; device < devices; ++device) {
      if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) continue;
      if (cudaSetDevice(device) == cudaSuccess) (void)cudaDeviceSynchronize();
    }
  }).join();
}

int Initialize() {
  std::string reason;
  if (!OpenDriver(&reason)) {
    std::fprintf(stderr, "simcuda: PyTorch's operators are not replaced: %s\n", reason.c_str());
    return -1;
  }
  InstallPlacingAllocator();
  RegisterAll();
  TurnOffLibraries();
  started_in = ::getpid();
  std::atexit(&FinishQueuedWork);
  return 0;
}

}  // namespace
}  // namespace simcuda::ops

const char* simcuda_torch_built_for() { return SPILLWAY_TORCH_VERSION; }

int simcuda_torch_start() {
  static std::once_flag once;
  static int result = -1;
  std::call_once(once, [] { result = simcuda::ops::Initialize(); });
  return result;
}
