// Driver functions: kernel launches. A launch copies its parameters into the work that it queues; the words
// among them that lie in a range, and the tensor maps that describe part of it, are what "this kernel will
// touch the range" means.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/log.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/core/sticky_errors.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/kernels/kernel.h"
#include "integration/simcuda/driver/kernels/launch.h"
#include "integration/simcuda/driver/kernels/module.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/machine/stats.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

// A running kernel's context, for simcuda_set_device_error.
thread_local Context* t_kernel_context = nullptr;

// Pointers to the parameters in one block of their bytes.
class ParameterPointers {
 public:
  ParameterPointers(const KernelDefinition& kernel, char* buffer) {
    const size_t count = kernel.parameters.size();
    if (count > kMaxOnStack) many_.resize(count);
    pointers_ = count > kMaxOnStack ? many_.data() : few_;
    for (size_t i = 0; i < count; ++i) pointers_[i] = buffer + kernel.parameters[i].offset;
  }
  ParameterPointers(const ParameterPointers&) = delete;
  ParameterPointers& operator=(const ParameterPointers&) = delete;
  void** get() const { return pointers_; }

 private:
  static constexpr size_t kMaxOnStack = 64;
  void* few_[kMaxOnStack];
  std::vector<void*> many_;
  void** pointers_;
};

void ReleaseParameters(const KernelDefinition& kernel, char* buffer) {
  const simcuda_release_function release = kernel.release.load();
  if (release != nullptr) release(ParameterPointers(kernel, buffer).get());
}

class KernelWork : public Work {
 public:
  // The parameter block follows the object in the same allocation.
  static KernelWork* Make(const FunctionHandle& function, const LaunchShape& shape) {
    void* memory = ::operator new(sizeof(KernelWork) + function.kernel->parameter_bytes);
    return new (memory) KernelWork(function, shape);
  }
  static void operator delete(void* memory) { ::operator delete(memory); }
  // A launch of a graph: the graph's operation keeps the parameters, and stays until this has run.
  void KeepOrigin(std::shared_ptr<const Operation> origin) { origin_ = std::move(origin); }
  // A launch of its own: when it has run, its parameters are released.
  void OwnParameters() { owns_parameters_ = true; }

  char* buffer() { return reinterpret_cast<char*>(this + 1); }

  bool Touches(uint64_t start, uint64_t size) const override {
    const char* bytes = reinterpret_cast<const char*>(this + 1);
    for (size_t at = 0; at + sizeof(uint64_t) <= kernel_.parameter_bytes; at += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, bytes + at, sizeof(word));
      if (word - start < size) return true;
    }
    return TensorMapsTouch(start, size);
  }
  const char* name() const override { return kernel_.name.c_str(); }

  void Run(Stream& stream, bool skip) override {
    if (!skip) RunNow(stream);
    // Before the work counts as done: whoever waits for it finds nothing of it alive.
    if (owns_parameters_) ReleaseParameters(kernel_, buffer());
    origin_.reset();
  }

 private:
  void RunNow(Stream& stream) {
    const int64_t least = GetSettings().kernel_ns.load(std::memory_order_relaxed);
    if (const HardwareProfile* const profile = ActiveProfile()) return RunAsOn(*profile, least, stream);
    const bool logging = IsLogging();
    const int64_t begin = least > 0 || logging ? NowNs() : 0;
    Call(stream);
    if (least > 0) SleepUntil(begin + least);
    GetStats().launches.fetch_add(1, std::memory_order_relaxed);
    if (!logging) return;
    Log(stream, begin, NowNs());
  }

  // Takes the times of a machine's profile: at least that of its table, longer by the kernel's accesses over
  // the link, and never less than the host took.
  void RunAsOn(const HardwareProfile& profile, int64_t least, Stream& stream) {
    const int64_t begin = stream.begin_ns();
    const double table_ns = profile.KernelNs(kernel_.name);
    const double reach_ns =
        profile.reach_bytes_per_ns > 0 ? static_cast<double>(ReachedBytes()) / profile.reach_bytes_per_ns : 0;
    const auto ns =
        static_cast<int64_t>(std::max(static_cast<double>(least) * profile.scale, table_ns) + reach_ns);
    const int64_t start = NowNs();
    Call(stream);
    const bool slower = NowNs() - start > ns;
    SleepUntil(begin + ns);
    const int64_t end = slower ? NowNs() : begin + ns;
    stream.set_end_ns(end);
    GetStats().launches.fetch_add(1, std::memory_order_relaxed);
    if (IsLogging()) Log(stream, begin, end);
  }

  // Host memory behind the addresses among the parameters. A kernel is taken to go over it once.
  uint64_t ReachedBytes() {
    uint64_t reached = 0;
    std::vector<std::pair<uint64_t, uint64_t>> seen;  // ranges, each counted once
    for (size_t at = 0; at + sizeof(uint64_t) <= kernel_.parameter_bytes; at += sizeof(uint64_t)) {
      uint64_t address;
      std::memcpy(&address, buffer() + at, sizeof(address));
      const auto has = [address](const auto& range) { return address - range.first < range.second; };
      uint64_t end = 0;
      if (std::ranges::any_of(seen, has)) continue;
      const uint64_t bytes = GetAddressSpace().HostBytesFrom(address, &end);
      if (end != address) seen.emplace_back(address, end - address);
      reached += bytes;
    }
    return reached;
  }

  void Log(Stream& stream, int64_t begin, int64_t end) {
    AppendLog({"kernel", stream.id(), stream.context()->device().ordinal(), begin, end, 0, "-",
               kernel_.name.c_str()});
  }

  KernelWork(const FunctionHandle& function, const LaunchShape& shape)
      : kernel_(*function.kernel), module_(function.module), shape_(shape) {}

  bool TensorMapsTouch(uint64_t start, uint64_t size) const {
    const char* bytes = reinterpret_cast<const char*>(this + 1);
    for (const simcuda_parameter& parameter : kernel_.parameters) {
      if (parameter.size != sizeof(CUtensorMap)) continue;
      simcuda_tensor_map map = {};
      map.struct_bytes = sizeof(map);
      if (simcuda_decode_tensor_map(bytes + parameter.offset, &map) != CUDA_SUCCESS) continue;
      if (map.address < start + size && start < map.address + map.bytes) return true;
    }
    return false;
  }

  void Call(Stream& stream) {
    const ParameterPointers pointers(kernel_, buffer());
    simcuda_launch launch = {};
    launch.struct_bytes = sizeof(launch);
    launch.name = kernel_.name.c_str();
    std::copy_n(shape_.grid, 3, launch.grid);
    std::copy_n(shape_.block, 3, launch.block);
    launch.shared_bytes = shape_.shared_bytes;
    launch.device = stream.context()->device().ordinal();
    launch.stream = reinterpret_cast<CUstream>(&stream);
    launch.stream_id = stream.id();
    launch.buffer = buffer();
    launch.buffer_bytes = kernel_.parameter_bytes;
    launch.user = kernel_.user;
    launch.module = module_;
    t_kernel_context = stream.context();
    try {
      RunGuarded(stream, [&] { kernel_.run(&launch, pointers.get()); });
    } catch (const std::exception& error) {
      stream.context()->Fail(CUDA_ERROR_LAUNCH_FAILED, "kernel " + kernel_.name + ": " + error.what());
    } catch (...) {
      stream.context()->Fail(CUDA_ERROR_LAUNCH_FAILED,
                             "kernel " + kernel_.name + ": an exception that is no std::exception");
    }
    t_kernel_context = nullptr;
  }

  const KernelDefinition& kernel_;
  const Module* const module_;
  const LaunchShape shape_;
  std::shared_ptr<const Operation> origin_;
  bool owns_parameters_ = false;
};

// Copies the parameters by the declared layout; false when the `extra` list is not understood. A buffer may
// be shorter than the parameters, as NCCL's is: what a kernel reads behind its end is not defined.
bool CopyParameters(const KernelDefinition& kernel, void** parameters, void** extra, char* buffer) {
  if (extra == nullptr) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      const simcuda_parameter& parameter = kernel.parameters[i];
      std::memcpy(buffer + parameter.offset, parameters[i], parameter.size);
    }
    return true;
  }
  const void* source = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      source = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return false;
    }
  }
  if (source == nullptr || bytes == 0) return false;
  const size_t given = std::min(bytes, kernel.parameter_bytes);
  std::memcpy(buffer, source, given);
  std::memset(buffer + given, 0xfe, kernel.parameter_bytes - given);
  return true;
}

bool IsShapeSane(const LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  return shape.grid[0] != 0 && shape.grid[1] != 0 && shape.grid[2] != 0 && threads != 0 && threads <= 1024 &&
         shape.grid[1] <= 65535 && shape.grid[2] <= 65535;
}

CUresult CheckLaunch(CUfunction handle, const LaunchShape& shape, void** parameters, void** extra,
                     FunctionHandle** function) {
  *function = FunctionOrKernel(handle);
  if (*function == nullptr) return BadHandle(handle, "a CUfunction or a CUkernel", CUDA_ERROR_INVALID_HANDLE);
  if (!IsShapeSane(shape)) return CUDA_ERROR_INVALID_VALUE;
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool none = parameters == nullptr && extra == nullptr;
  return none && !(*function)->kernel->parameters.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Takes a launch's own memory: the kernel's code, and once on a device the local memory of all kernels.
CUresult TakeMemory(FunctionHandle* function, Device* device) {
  if (CUresult result = function->LoadCode(device); result != CUDA_SUCCESS) return result;
  return device->TakeLocalMemory() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

template <Form kForm>
CUresult Launch(CUfunction handle, const LaunchShape& shape, CUstream stream_handle, void** parameters,
                void** extra) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(stream_handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  FunctionHandle* function = nullptr;
  if (CUresult result = CheckLaunch(handle, shape, parameters, extra, &function); result != CUDA_SUCCESS)
    return result;
  // A function is of one context; a kernel, and what registration gave, is good in all.
  const Module* const module = function->module;
  if (module != nullptr && module->context != nullptr && module->context != stream->context())
    return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = TakeMemory(function, &stream->context()->device()); result != CUDA_SUCCESS)
    return result;
  bool capturing = false;
  if (CUresult result = EnterQueueing(*stream, &capturing); result != CUDA_SUCCESS) return result;
  if (capturing) {
    std::shared_ptr<KernelOperation> operation;
    const CUresult result = KernelOperation::Make(handle, shape, parameters, extra, &operation);
    return result != CUDA_SUCCESS ? result : RecordOperation(*stream, std::move(operation));
  }
  CallTime time(Call::kLaunch);
  time.Spend();
  const KernelDefinition& kernel = *function->kernel;
  KernelWork* work = KernelWork::Make(*function, shape);
  std::memset(work->buffer(), 0, kernel.parameter_bytes);
  if (!CopyParameters(kernel, parameters, extra, work->buffer())) {
    delete work;
    return CUDA_ERROR_INVALID_VALUE;
  }
  work->OwnParameters();
  stream->context()->Enqueue(*stream, work);
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult LaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  return Launch<kForm>(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, extra);
}

template <Form kForm>
CUresult LaunchCooperative(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, CUstream stream, void** parameters) {
  return Launch<kForm>(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, nullptr);
}

template <Form kForm>
CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes};
  return Launch<kForm>(function, shape, config->hStream, parameters, extra);
}

}  // namespace

KernelOperation::KernelOperation(CUfunction handle, const FunctionHandle& function, const LaunchShape& shape)
    : handle_(handle), function_(function), shape_(shape), buffer_(function.kernel->parameter_bytes) {
  for (const simcuda_parameter& parameter : function.kernel->parameters)
    parameters_.push_back(buffer_.data() + parameter.offset);
}

KernelOperation::~KernelOperation() {
  if (owns_parameters_) ReleaseParameters(*function_.kernel, buffer_.data());
}

CUresult KernelOperation::Make(CUfunction handle, const LaunchShape& shape, void** parameters, void** extra,
                               std::shared_ptr<KernelOperation>* made) {
  FunctionHandle* function = nullptr;
  if (CUresult result = CheckLaunch(handle, shape, parameters, extra, &function); result != CUDA_SUCCESS)
    return result;
  std::shared_ptr<KernelOperation> operation(new KernelOperation(handle, *function, shape));
  if (!CopyParameters(*function->kernel, parameters, extra, operation->buffer_.data()))
    return CUDA_ERROR_INVALID_VALUE;
  operation->owns_parameters_ = true;
  *made = std::move(operation);
  return CUDA_SUCCESS;
}

CUresult KernelOperation::Submit(Stream& stream) const {
  KernelWork* work = KernelWork::Make(function_, shape_);
  std::memcpy(work->buffer(), buffer_.data(), buffer_.size());
  work->KeepOrigin(shared_from_this());
  stream.context()->Enqueue(stream, work);
  return CUDA_SUCCESS;
}

}  // namespace simcuda

SIMCUDA_BOTH_FORMS(cuLaunchKernel, _ptsz, simcuda::LaunchKernel,
                   (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra),
                   (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
SIMCUDA_BOTH_FORMS(cuLaunchCooperativeKernel, _ptsz, simcuda::LaunchCooperative,
                   (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, CUstream stream, void** parameters),
                   (f, gx, gy, gz, bx, by, bz, shared, stream, parameters))
SIMCUDA_BOTH_FORMS(cuLaunchKernelEx, _ptsz, simcuda::LaunchKernelEx,
                   (const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra),
                   (config, f, parameters, extra))
SIMCUDA_API int simcuda_fail_device(int code, const char* text) {
  simcuda::Context* context =
      simcuda::t_kernel_context != nullptr ? simcuda::t_kernel_context : simcuda::CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!simcuda::IsSticky(code)) return CUDA_ERROR_INVALID_VALUE;
  context->Fail(static_cast<CUresult>(code), text == nullptr ? "" : text);
  return CUDA_SUCCESS;
}

SIMCUDA_API void simcuda_set_device_error(const char* text) {
  simcuda_fail_device(CUDA_ERROR_LAUNCH_FAILED, text);
}

SIMCUDA_API const char* simcuda_device_error(void) {
  thread_local char text[1024];  // no object that the thread's end would destroy
  simcuda::Context* context = simcuda::CurrentContext();
  std::snprintf(text, sizeof(text), "%s", context == nullptr ? "" : context->error_text().c_str());
  return text;
}
