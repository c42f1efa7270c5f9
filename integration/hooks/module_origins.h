// ModuleOrigins: the shared object, or file, that each module and library of kernels was loaded from, noted as it is
// loaded. Only where somebody wants to know: in audit mode, or when a deny list names libraries.

#ifndef SPILLWAY_INTEGRATION_HOOKS_MODULE_ORIGINS_H_
#define SPILLWAY_INTEGRATION_HOOKS_MODULE_ORIGINS_H_

#include <atomic>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/hooks/driver_compat.h"
#include "io/os/sync.h"

namespace spillway::integration {

class ModuleOrigins {
 public:
  // From now on; before the first load that matters.
  void Enable() { enabled_.store(true, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // A module or library was loaded from the image at `image` by code at `caller`: the shared object that
  // holds the image, else (an image made at run time) the one that asked for it.
  template <typename H>
  void NoteImage(H handle, const void* image, const void* caller) {
    if (enabled()) Note(handle, kIsLibrary<H>, LibraryAt(image, caller));
  }
  template <typename H>
  void NoteFile(H handle, const char* path) {
    if (enabled() && path != nullptr) Note(handle, kIsLibrary<H>, FileNameOf(path));
  }
  // File name without folders; empty when not known.
  std::string Find(const void* handle) const;
  std::vector<CUlibrary> Libraries() const;

 private:
  template <typename H>
  static constexpr bool kIsLibrary = std::is_same_v<H, CUlibrary>;
  static std::string LibraryAt(const void* image, const void* caller);
  static std::string FileNameOf(std::string_view path);
  void Note(const void* handle, bool is_library, std::string file);

  std::atomic<bool> enabled_{false};
  mutable os::Mutex mu_{os::LockRank::kRegistry};
  struct Origin {
    bool is_library;  // a CUlibrary, else a CUmodule
    std::string file;
  };
  std::unordered_map<const void*, Origin> origins_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_MODULE_ORIGINS_H_
