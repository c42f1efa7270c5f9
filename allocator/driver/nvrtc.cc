#include "allocator/driver/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "io/os/errno.h"

namespace spillway::allocator {

// The few functions of NVRTC's C interface that are used, by their documented signatures; results are 0 for success.
struct Nvrtc::Functions {
  using Program = void*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*arch_count)(int*) = nullptr;
  int (*archs)(int*) = nullptr;
  const char* (*error)(int) = nullptr;
};

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nvrtc>> Nvrtc::Open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why == nullptr ? library : why);
  }
  auto functions = std::make_unique<Functions>();
  const bool whole = Find(handle, "nvrtcCreateProgram", &functions->create) &&
                     Find(handle, "nvrtcDestroyProgram", &functions->destroy) &&
                     Find(handle, "nvrtcCompileProgram", &functions->compile) &&
                     Find(handle, "nvrtcGetCUBINSize", &functions->cubin_size) &&
                     Find(handle, "nvrtcGetCUBIN", &functions->cubin) &&
                     Find(handle, "nvrtcGetPTXSize", &functions->ptx_size) &&
                     Find(handle, "nvrtcGetPTX", &functions->ptx) &&
                     Find(handle, "nvrtcGetProgramLogSize", &functions->log_size) &&
                     Find(handle, "nvrtcGetProgramLog", &functions->log) &&
                     Find(handle, "nvrtcGetNumSupportedArchs", &functions->arch_count) &&
                     Find(handle, "nvrtcGetSupportedArchs", &functions->archs) &&
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

absl::StatusOr<std::string> Nvrtc::Compile(const char* source, int major, int minor) const {
  const Functions& nvrtc = *functions_;
  const auto failed = [&](int result, const char* what) {
    return absl::InternalError(std::string("NVRTC, ") + what + ": " + nvrtc.error(result));
  };
  int count = 0;
  if (int result = nvrtc.arch_count(&count); result != 0) return failed(result, "architectures");
  std::vector<int> known(static_cast<size_t>(std::max(count, 1)));
  if (int result = nvrtc.archs(known.data()); result != 0) return failed(result, "architectures");
  const int wanted = 10 * major + minor;
  const bool exact = std::find(known.begin(), known.end(), wanted) != known.end();
  const std::string option =
      exact ? "--gpu-architecture=sm_" + std::to_string(wanted)
            : "--gpu-architecture=compute_" + std::to_string(*std::max_element(known.begin(), known.end()));
  Functions::Program program = nullptr;
  if (int result = nvrtc.create(&program, source, "spillway_content_hash.cu", 0, nullptr, nullptr);
      result != 0) {
    return failed(result, "creating a program");
  }
  const char* const options[] = {option.c_str()};
  std::string image;
  int result = nvrtc.compile(program, 1, options);
  size_t bytes = 0;
  if (result == 0) result = exact ? nvrtc.cubin_size(program, &bytes) : nvrtc.ptx_size(program, &bytes);
  if (result == 0) {
    image.resize(bytes);
    result = exact ? nvrtc.cubin(program, image.data()) : nvrtc.ptx(program, image.data());
  }
  std::string log;
  if (result != 0 && nvrtc.log_size(program, &bytes) == 0 && bytes > 1) {
    log.resize(bytes);
    if (nvrtc.log(program, log.data()) != 0) log.clear();
  }
  nvrtc.destroy(&program);
  if (result != 0) return absl::InternalError(std::string("NVRTC: ") + nvrtc.error(result) + " " + log);
  return image;
}

}  // namespace spillway::allocator
