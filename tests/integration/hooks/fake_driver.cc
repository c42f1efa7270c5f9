#include "tests/integration/hooks/fake_driver.h"

namespace spillway::integration {
namespace {

template <Row R, typename Function = typename RowTraits<R>::Function>
struct Recording;
template <Row R, typename... A>
struct Recording<R, CUresult(CUDAAPI*)(A...)> {
  static CUresult CUDAAPI Call(A... arguments) {
    FakeDriver& driver = FakeDriver::Get();
    const std::string symbol = RowTraits<R>::kInfo.symbol;
    driver.calls.push_back({symbol, FakeDriver::Pack(arguments...)});
    auto& wanted = driver.results[symbol];
    if (wanted.empty()) return driver.result;
    const CUresult next = wanted.front();
    wanted.erase(wanted.begin());
    return next;
  }
};

// What a question that hooks ask on their own account answers first: the next result that the test wants.
CUresult Refusal(const char* symbol) {
  auto& wanted = FakeDriver::Get().results[symbol];
  if (wanted.empty()) return CUDA_SUCCESS;
  const CUresult next = wanted.front();
  wanted.erase(wanted.begin());
  return next;
}

// Recorded, and where an address lies is answered as the test wants.
CUresult PointerAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const CUresult result = Recording<Row::cuPointerGetAttribute>::Call(data, attribute, address);
  if (result != CUDA_SUCCESS || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return result;
  if (FakeDriver::Get().pointer_answer == CUDA_SUCCESS)
    *static_cast<unsigned int*>(data) = CU_MEMORYTYPE_DEVICE;
  return FakeDriver::Get().pointer_answer;
}

void* Function(const std::string& symbol) {
  static const std::map<std::string, void*> all = [] {
    std::map<std::string, void*> functions;
    ForEachRow([&functions]<Row R>() {
      functions[RowTraits<R>::kInfo.symbol] = reinterpret_cast<void*>(&Recording<R>::Call);
    });
    // What hooks ask on their own account is answered, and not recorded.
    const auto put = [&functions](const char* name, auto function) {
      functions[name] = reinterpret_cast<void*>(+function);
    };
    put("cuCtxGetDevice", [](CUdevice* device) {
      if (const CUresult refused = Refusal("cuCtxGetDevice"); refused != CUDA_SUCCESS) return refused;
      *device = FakeDriver::Get().device;
      return CUDA_SUCCESS;
    });
    put("cuStreamIsCapturing", [](CUstream, CUstreamCaptureStatus* status) {
      if (const CUresult refused = Refusal("cuStreamIsCapturing"); refused != CUDA_SUCCESS) return refused;
      *status = FakeDriver::Get().capture;
      return CUDA_SUCCESS;
    });
    put("cuStreamGetCaptureInfo_v3", [](CUstream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                        const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
      if (const CUresult refused = Refusal("cuStreamGetCaptureInfo_v3"); refused != CUDA_SUCCESS)
        return refused;
      *status = FakeDriver::Get().capture;
      *id = FakeDriver::Get().capture_id;
      return CUDA_SUCCESS;
    });
    put("cuFuncGetParamInfo", [](CUfunction, size_t index, size_t* offset, size_t* size) {
      if (const CUresult refused = Refusal("cuFuncGetParamInfo"); refused != CUDA_SUCCESS) return refused;
      if (!FakeDriver::Get().layouts) return CUDA_ERROR_NOT_SUPPORTED;
      if (index >= FakeDriver::Get().param_sizes.size()) return CUDA_ERROR_INVALID_VALUE;
      *size = FakeDriver::Get().param_sizes[index];
      return CUDA_SUCCESS;
    });
    put("cuPointerGetAttribute", &PointerAttribute);
    put("cuModuleGetFunctionCount", [](unsigned int* count, CUmodule) {
      *count = FakeDriver::Get().counts;
      return CUDA_SUCCESS;
    });
    put("cuLibraryGetKernelCount", [](unsigned int* count, CUlibrary) {
      *count = FakeDriver::Get().counts;
      return CUDA_SUCCESS;
    });
    put("cuKernelGetParamInfo", [](CUkernel, size_t, size_t*, size_t*) { return CUDA_ERROR_NOT_SUPPORTED; });
    put("cuFuncGetName", [](const char** name, CUfunction) {
      if (const CUresult refused = Refusal("cuFuncGetName"); refused != CUDA_SUCCESS) return refused;
      *name = FakeDriver::Get().kernel_name.c_str();
      return CUDA_SUCCESS;
    });
    put("cuFuncGetModule", [](CUmodule* module, CUfunction) {
      *module = reinterpret_cast<CUmodule>(0x3000);
      return CUDA_SUCCESS;
    });
    return functions;
  }();
  return all.at(symbol);
}

}  // namespace

HookReport FakeDriver::Install() {
  return InstallHooks(
      [this](const char* symbol) -> void* {
        if (std::ranges::find(absent, symbol) != absent.end()) return nullptr;
        const auto it = overrides.find(symbol);
        return it != overrides.end() ? it->second : Function(symbol);
      },
      [this](const char* symbol, void* wrapper) {
        if (std::ranges::find(refused, symbol) != refused.end()) return -1;
        wrappers[symbol] = wrapper;
        return 0;
      });
}

}  // namespace spillway::integration
