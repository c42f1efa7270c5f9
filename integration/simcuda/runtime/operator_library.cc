// Opening the operator library: see operator_library.h.
#include "integration/simcuda/runtime/operator_library.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace simcuda {
namespace {

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

bool EndsWith(const char* text, const char* end) {
  const size_t text_length = std::strlen(text);
  const size_t end_length = std::strlen(end);
  return text_length >= end_length && std::strcmp(text + text_length - end_length, end) == 0;
}

// The path of libtorch_cuda.so in this process, or empty.
std::string LoadedTorch() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        if (!EndsWith(info->dlpi_name, "/libtorch_cuda.so")) return 0;
        *static_cast<std::string*>(found) = info->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

// The version in torch/version.py, beside the folder of PyTorch's libraries; empty when it cannot be read.
std::string TorchVersion(const std::string& library) {
  const std::string path = DirectoryOf(DirectoryOf(library)) + "/version.py";
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return "";
  char line[256];
  std::string version;
  while (version.empty() && std::fgets(line, sizeof(line), file) != nullptr) {
    char text[128];
    if (std::sscanf(line, "__version__ = '%127[^']'", text) == 1) version = text;
  }
  std::fclose(file);
  return version;
}

std::string OwnDirectory() {
  Dl_info info{};
  static const int here = 0;
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return ".";
  return DirectoryOf(info.dli_fname);
}

void PrintLine(const std::string& text) {
  std::fprintf(stderr, "simcuda: PyTorch's operators for cuda are not available: %s\n", text.c_str());
}

// "2_11" of "2.11.0+cu130"; empty when it does not begin like that.
std::string MinorOf(const std::string& version) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return "";
  return std::to_string(major) + "_" + std::to_string(minor);
}

void OpenOperatorLibrary(const std::string& torch_library) {
  const std::string running = TorchVersion(torch_library);
  const std::string minor = MinorOf(running);
  if (minor.empty()) return PrintLine("no version of PyTorch in version.py beside " + torch_library);
  const std::string path = OwnDirectory() + "/libsimcuda_torch_" + minor + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return PrintLine(dlerror());
  using BuiltFor = const char* (*)();
  using Start = int (*)();
  const auto built_for = reinterpret_cast<BuiltFor>(dlsym(library, "simcuda_torch_built_for"));
  const auto start = reinterpret_cast<Start>(dlsym(library, "simcuda_torch_start"));
  if (built_for != nullptr) {
    const std::string expected = built_for();
    // "2.11.0" and "2.11.0+cu130" are the same sources.
    const auto release = [](const std::string& version) { return version.substr(0, version.find('+')); };
    if (release(running) != release(expected)) {
      return PrintLine(path + " was built for PyTorch " + expected + ", this is " + running);
    }
  }
  if (start != nullptr && start() != 0) PrintLine(path + " did not start");
}

}  // namespace

void OpenOperatorLibraryOnce() {
  // `done` is stored after the library has registered its operators, and pairs with the load below.
  static std::atomic<bool> done{false};
  static std::mutex mu;
  static thread_local bool opening = false;
  if (opening || done.load(std::memory_order_acquire)) return;
  const std::string torch_library = LoadedTorch();
  if (torch_library.empty()) return;

  std::lock_guard<std::mutex> lock(mu);
  if (done.load(std::memory_order_acquire)) return;
  opening = true;
  OpenOperatorLibrary(torch_library);
  opening = false;
  done.store(true, std::memory_order_release);
}

}  // namespace simcuda
