#include "bench/null_driver.h"

#include <atomic>
#include <map>
#include <string>

#include "integration/hooks/hook_rows.h"

namespace spillway::bench {
namespace {

using integration::Row;
using integration::RowTraits;

constexpr CUdeviceptr kBase = 0x700000000000;
constexpr size_t kTotalBytes = size_t{256} << 30;

template <Row R, typename Function = typename RowTraits<R>::Function>
struct Nothing;
template <Row R, typename... A>
struct Nothing<R, CUresult(CUDAAPI*)(A...)> {
  static CUresult CUDAAPI Call(A...) { return CUDA_SUCCESS; }
};

// A function of this type that does nothing.
template <typename... A>
void* NothingOf(CUresult(CUDAAPI*)(A...)) {
  return reinterpret_cast<void*>(+[](A...) -> CUresult { return CUDA_SUCCESS; });
}

// Handles that nobody looks into.
template <typename Handle>
Handle NewHandle() {
  static std::atomic<uintptr_t> next{0x1000};  // any thread
  return reinterpret_cast<Handle>(next.fetch_add(16));
}

// What the product calls.
void PutEntries(std::map<std::string, void*>* functions) {
#define DRIVER_ENTRY(symbol) (*functions)[#symbol] = NothingOf(static_cast<decltype(&::symbol)>(nullptr));
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY
}

std::map<std::string, void*> Functions() {
  std::map<std::string, void*> functions;
  PutEntries(&functions);
  integration::ForEachRow([&functions]<Row R>() {
    functions[RowTraits<R>::kInfo.symbol] = reinterpret_cast<void*>(&Nothing<R>::Call);
  });
  const auto put = [&functions](const char* name, auto function) {
    functions[name] = reinterpret_cast<void*>(+function);
  };
  put("cuMemAddressReserve", [](CUdeviceptr* base, size_t, size_t, CUdeviceptr, unsigned long long) {
    *base = kBase;
    return CUDA_SUCCESS;
  });
  put("cuMemCreate",
      [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*, unsigned long long) {
        *handle = reinterpret_cast<uintptr_t>(NewHandle<void*>());
        return CUDA_SUCCESS;
      });
  put("cuMemGetInfo_v2", [](size_t* free, size_t* total) {
    *free = *total = kTotalBytes;
    return CUDA_SUCCESS;
  });
  put("cuEventCreate", [](CUevent* event, unsigned int) {
    *event = NewHandle<CUevent>();
    return CUDA_SUCCESS;
  });
  put("cuStreamCreateWithPriority", [](CUstream* stream, unsigned int, int) {
    *stream = NewHandle<CUstream>();
    return CUDA_SUCCESS;
  });
  put("cuStreamIsCapturing", [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
  put("cuCtxGetDevice", [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  });
  put("cuCtxGetCurrent", [](CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(0x10);
    return CUDA_SUCCESS;
  });
  put("cuFuncGetParamInfo", [](CUfunction function, size_t index, size_t* offset, size_t* size) {
    const auto* kernel = reinterpret_cast<const NullKernel*>(function);
    if (index >= kernel->parameter_bytes.size()) return CUDA_ERROR_INVALID_VALUE;
    if (offset != nullptr) *offset = 0;
    *size = kernel->parameter_bytes[index];
    return CUDA_SUCCESS;
  });
  put("cuFuncGetName", [](const char** name, CUfunction) {
    *name = "null_kernel";
    return CUDA_SUCCESS;
  });
  put("cuFuncGetModule", [](CUmodule* module, CUfunction) {
    *module = reinterpret_cast<CUmodule>(0x20);
    return CUDA_SUCCESS;
  });
  return functions;
}

}  // namespace

void* NullDriverFunction(const char* symbol) {
  static const std::map<std::string, void*> functions = Functions();
  const auto found = functions.find(symbol);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace spillway::bench
