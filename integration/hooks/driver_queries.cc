#include "integration/hooks/driver_queries.h"

namespace spillway::integration {

FunctionQueries::Answer DriverFunctionQueries::ParamSize(void* handle, bool is_kernel, size_t index,
                                                         size_t* bytes) const {
  size_t offset = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (is_kernel) {
    if (const auto ask = real_->Get<Row::cuKernelGetParamInfo>()) {
      result = ask(static_cast<CUkernel>(handle), index, &offset, bytes);
    }
  } else if (const auto ask = real_->Get<Row::cuFuncGetParamInfo>()) {
    result = ask(static_cast<CUfunction>(handle), index, &offset, bytes);
  }
  if (result == CUDA_SUCCESS) return Answer::kOk;
  return result == CUDA_ERROR_INVALID_VALUE ? Answer::kPastEnd : Answer::kFailed;
}

bool DriverFunctionQueries::Name(void* handle, bool is_kernel, std::string* name) const {
  const char* text = nullptr;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (is_kernel) {
    if (const auto ask = real_->Get<Row::cuKernelGetName>())
      result = ask(&text, static_cast<CUkernel>(handle));
  } else if (const auto ask = real_->Get<Row::cuFuncGetName>()) {
    result = ask(&text, static_cast<CUfunction>(handle));
  }
  if (result != CUDA_SUCCESS || text == nullptr) return false;
  *name = text;
  return true;
}

void* DriverFunctionQueries::Owner(void* handle, bool is_kernel) const {
  if (is_kernel) {
    CUlibrary library = nullptr;
    const auto ask = real_->Get<Row::cuKernelGetLibrary>();
    return ask != nullptr && ask(&library, static_cast<CUkernel>(handle)) == CUDA_SUCCESS ? library : nullptr;
  }
  CUmodule module = nullptr;
  const auto ask = real_->Get<Row::cuFuncGetModule>();
  return ask != nullptr && ask(&module, static_cast<CUfunction>(handle)) == CUDA_SUCCESS ? module : nullptr;
}

std::string DriverFunctionQueries::LibraryOf(void* owner) const {
  if (owner == nullptr || !origins_->enabled()) return "";
  std::string library = origins_->Find(owner);
  const auto module_of = real_->Get<Row::cuLibraryGetModule>();
  if (!library.empty() || module_of == nullptr) return library;
  // A CUfunction got from a CUkernel belongs to a module that nobody loaded as one.
  for (const CUlibrary candidate : origins_->Libraries()) {
    CUmodule module = nullptr;
    if (module_of(&module, candidate) == CUDA_SUCCESS && module == owner) return origins_->Find(candidate);
  }
  return "";
}

}  // namespace spillway::integration
