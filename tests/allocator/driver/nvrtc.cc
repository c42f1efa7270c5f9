#include "tests/allocator/driver/nvrtc.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace spillway::allocator {

// The few functions of NVRTC's C interface that are used, by their documented signatures; results are 0 for
// success.
struct Nvrtc::Functions {
  using Program = void*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  const char* (*error)(int) = nullptr;
};

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// NVRTC looks for its second library by name alone, which PyTorch's wheels have beside it.
void OpenBuiltinsBeside(const std::filesystem::path& library) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(library.parent_path(), error)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so."))
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);  // stays: NVRTC may ask for it at any time
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nvrtc>> Nvrtc::Open(const std::string& library) {
  OpenBuiltinsBeside(library);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why == nullptr ? library : why);
  }
  auto functions = std::make_unique<Functions>();
  const bool whole = Find(handle, "nvrtcCreateProgram", &functions->create) &&
                     Find(handle, "nvrtcDestroyProgram", &functions->destroy) &&
                     Find(handle, "nvrtcCompileProgram", &functions->compile) &&
                     Find(handle, "nvrtcGetPTXSize", &functions->ptx_size) &&
                     Find(handle, "nvrtcGetPTX", &functions->ptx) &&
                     Find(handle, "nvrtcGetErrorString", &functions->error);
  if (!whole) {
    dlclose(handle);
    return absl::NotFoundError(library + " lacks functions of NVRTC");
  }
  return std::unique_ptr<Nvrtc>(new Nvrtc(handle, std::move(functions)));
}

Nvrtc::Nvrtc(void* library, std::unique_ptr<Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvrtc::~Nvrtc() { dlclose(library_); }

absl::StatusOr<std::string> Nvrtc::CompileToPtx(const std::string& source, const std::string& header_name,
                                                const std::string& header, int capability) const {
  const Functions& nvrtc = *functions_;
  Functions::Program program = nullptr;
  const char* const headers[] = {header.c_str()};
  const char* const names[] = {header_name.c_str()};
  if (int result = nvrtc.create(&program, source.c_str(), "content_hash.cu", 1, headers, names);
      result != 0) {
    return absl::InternalError(std::string("NVRTC, creating a program: ") + nvrtc.error(result));
  }
  const std::string option = "--gpu-architecture=compute_" + std::to_string(capability);
  const char* const options[] = {option.c_str()};
  std::string ptx;
  int result = nvrtc.compile(program, 1, options);
  size_t bytes = 0;
  if (result == 0) result = nvrtc.ptx_size(program, &bytes);
  if (result == 0) {
    ptx.resize(bytes);
    result = nvrtc.ptx(program, ptx.data());
  }
  nvrtc.destroy(&program);
  if (result != 0) return absl::InternalError(std::string("NVRTC: ") + nvrtc.error(result));
  return ptx;
}

}  // namespace spillway::allocator
