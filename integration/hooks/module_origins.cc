#include "integration/hooks/module_origins.h"

#include <dlfcn.h>

#include <utility>

namespace spillway::integration {
namespace {

// Path of the shared object that `address` lies in; empty for memory of no object.
std::string_view ObjectAt(const void* address) {
  Dl_info info = {};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

std::string ModuleOrigins::FileNameOf(std::string_view path) {
  return std::string(path.substr(path.find_last_of('/') + 1));
}

std::string ModuleOrigins::LibraryAt(const void* image, const void* caller) {
  const std::string_view holder = ObjectAt(image);
  return FileNameOf(holder.empty() ? ObjectAt(caller) : holder);
}

void ModuleOrigins::Note(const void* handle, bool is_library, std::string file) {
  os::MutexLock lock(&mu_);
  origins_[handle] = {is_library, std::move(file)};
}

std::string ModuleOrigins::Find(const void* handle) const {
  os::MutexLock lock(&mu_);
  const auto found = origins_.find(handle);
  return found == origins_.end() ? "" : found->second.file;
}

std::vector<CUlibrary> ModuleOrigins::Libraries() const {
  os::MutexLock lock(&mu_);
  std::vector<CUlibrary> libraries;
  for (const auto& [handle, origin] : origins_) {
    if (origin.is_library) libraries.push_back(static_cast<CUlibrary>(const_cast<void*>(handle)));
  }
  return libraries;
}

}  // namespace spillway::integration
