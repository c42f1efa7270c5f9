// TorchSwap puts Spillway's allocator into PyTorch, when PyTorch is in the process. It finds libc10_cuda
// among the mapped libraries, reads its version, and opens the library of ours that was compiled for that
// version. The engine tries it until it is settled (installed, or refused with one line): when the engine
// opens, at each later cuInit, when a library is opened after PyTorch (dlopen_hook.c), and at the next
// allocation that is not ours, on the thread of that call. No cuInit may follow, since another library may
// have initialized the runtime that PyTorch shares.

#ifndef SPILLWAY_INTEGRATION_ENGINE_TORCH_SWAP_H_
#define SPILLWAY_INTEGRATION_ENGINE_TORCH_SWAP_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "integration/engine/not_served.h"
#include "integration/engine/spillway.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"

namespace spillway::integration {

// Returns the path of the mapped libc10_cuda.so, empty if PyTorch's CUDA part is not loaded.
std::string MappedTorchLibrary();

// Returns "2.11.0+cu130", from PyTorch's own version file beside `library` (torch/version.py for
// torch/lib/libc10_cuda.so). kNotFound if there is none.
absl::StatusOr<std::string> TorchRelease(const std::string& library);
// Returns "2.11" of "2.11.0+cu130"; empty if the text begins otherwise.
std::string MinorOf(std::string_view release);

// Returns the versions ("2.11", ...) that libraries in `directory` were compiled for, in order.
std::vector<std::string> TorchVersionsIn(const std::string& directory);

class TorchSwap {
 public:
  // `directory`: the folder of our libraries. `api` lives as long as the process. `if_not`: the consequence
  // if PyTorch is there and cannot be served.
  TorchSwap(std::string directory, const spillway_api* api, IfNotServed if_not)
      : directory_(std::move(directory)), api_(api), if_not_(if_not) {}

  // Installs the allocator if PyTorch is there and nothing is settled yet. Thread-safe; cheap once settled.
  void Try();

  // Returns whether there is no more to try. Thread-safe; takes no lock.
  bool settled() const { return settled_.load(); }

  // Returns "2.11" once it is installed; empty before. Thread-safe; the caller holds no lock.
  std::string installed_version() const {
    os::MutexLock lock(&mu_);
    return installed_version_;
  }

 private:
  // kUnavailable: PyTorch is just being opened, so a later try will do.
  absl::Status InstallInto(const std::string& library) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string directory_;
  const spillway_api* const api_;
  const IfNotServed if_not_;
  mutable os::Mutex mu_{os::LockRank::kRuntime};
  os::Atomic<bool> settled_{false};  // set under mu_
  std::string installed_version_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_TORCH_SWAP_H_
