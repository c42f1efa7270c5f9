#include "integration/simcuda/driver/kernels/kernel.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/device.h"

namespace simcuda {
namespace {

struct KernelRegistry {
  std::mutex mutex;  // guards the rest
  // Never freed: queued launches and handles refer to them for the life of the process.
  std::unordered_map<std::string, std::vector<const KernelDefinition*>> by_name;
};
KernelRegistry& GetKernelRegistry() {
  static KernelRegistry* registry = new KernelRegistry;
  return *registry;
}

// Parameters ascend without overlap and fit what a launch can carry.
bool IsLayoutSane(const simcuda_parameter* parameters, size_t count) {
  size_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    const simcuda_parameter& parameter = parameters[i];
    if (parameter.size == 0 || parameter.offset < end) return false;
    end = parameter.offset + parameter.size;
  }
  constexpr size_t kMaxParameterBytes = 32764;
  return end <= kMaxParameterBytes;
}

void SetLayout(KernelDefinition* kernel, const simcuda_parameter* parameters, size_t count) {
  kernel->parameters.assign(parameters, parameters + count);
  kernel->parameter_bytes = count == 0 ? 0 : parameters[count - 1].offset + parameters[count - 1].size;
}

bool IsPlausible(const simcuda_kernel& kernel, bool wants_handle) {
  if (kernel.name == nullptr || *kernel.name == '\0' || kernel.run == nullptr) return false;
  if (kernel.parameter_count == SIMCUDA_LAYOUT_OF_IMAGE) return !wants_handle;
  return kernel.parameter_count == 0 ||
         (kernel.parameters != nullptr && IsLayoutSane(kernel.parameters, kernel.parameter_count));
}

}  // namespace

CUresult FunctionHandle::LoadCode(Device* device) {
  const int64_t bytes = GetSettings().code_bytes.load(std::memory_order_relaxed);
  if (bytes == 0) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(code_mutex_);
  if (code_device_ != nullptr) return CUDA_SUCCESS;
  if (!device->Charge(static_cast<uint64_t>(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  code_device_ = device;
  code_bytes_ = static_cast<uint64_t>(bytes);
  return CUDA_SUCCESS;
}

void FunctionHandle::UnloadCode() {
  std::lock_guard<std::mutex> lock(code_mutex_);
  if (code_device_ != nullptr) code_device_->Uncharge(code_bytes_);
  code_device_ = nullptr;
}

const KernelDefinition* FindKernel(const std::string& name, long parameters) {
  KernelRegistry& registry = GetKernelRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto named = registry.by_name.find(name);
  if (named == registry.by_name.end()) return nullptr;
  for (const KernelDefinition* kernel : named->second) {
    if (parameters < 0 || kernel->parameters.size() == static_cast<size_t>(parameters)) return kernel;
  }
  return nullptr;
}

const KernelDefinition* WithLayout(const KernelDefinition* kernel,
                                   const std::vector<simcuda_parameter>& layout) {
  if (!kernel->layout_of_image) {
    const auto same = [](const simcuda_parameter& a, const simcuda_parameter& b) {
      return a.offset == b.offset && a.size == b.size;
    };
    const bool equal =
        std::equal(layout.begin(), layout.end(), kernel->parameters.begin(), kernel->parameters.end(), same);
    return equal ? kernel : nullptr;
  }
  if (!IsLayoutSane(layout.data(), layout.size())) return nullptr;
  auto* const definition = new KernelDefinition;  // never freed, as those that are registered
  definition->name = kernel->name;
  definition->run = kernel->run;
  definition->user = kernel->user;
  SetLayout(definition, layout.data(), layout.size());
  return definition;
}

}  // namespace simcuda

SIMCUDA_API int simcuda_set_release(struct CUfunc_st* function, simcuda_release_function release) {
  const simcuda::FunctionHandle* handle = simcuda::FunctionOrKernel(function);
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  handle->kernel->release = release;
  return CUDA_SUCCESS;
}

SIMCUDA_API int simcuda_register_kernel(const simcuda_kernel* kernel, struct CUfunc_st** function) {
  if (kernel == nullptr || !simcuda::IsPlausible(*kernel, function != nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  auto* definition = new simcuda::KernelDefinition;
  definition->name = kernel->name;
  definition->run = kernel->run;
  definition->user = kernel->user;
  definition->layout_of_image = kernel->parameter_count == SIMCUDA_LAYOUT_OF_IMAGE;
  if (!definition->layout_of_image)
    simcuda::SetLayout(definition, kernel->parameters, kernel->parameter_count);
  simcuda::KernelRegistry& registry = simcuda::GetKernelRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.by_name[definition->name].push_back(definition);
  if (function != nullptr) {
    auto* handle = new simcuda::FunctionHandle;
    handle->kernel = definition;
    handle->Live(simcuda::HandleKind::kFunction);
    *function = reinterpret_cast<CUfunction>(handle);
  }
  return CUDA_SUCCESS;
}
