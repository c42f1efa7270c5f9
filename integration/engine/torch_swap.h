// TorchSwap: puts Spillway's allocator into PyTorch, when PyTorch is in the process. It finds libc10_cuda
// among the mapped libraries, reads its version, and opens the library of ours that was compiled for that
// version. Until it is settled (installed, or refused with one line) the engine tries it when it opens, at each
// later cuInit, when something is opened after PyTorch (dlopen_hook.c), and at the next allocation that is not
// ours, on the thread of that call: another library may have initialised the runtime that PyTorch shares.

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

// Path of the mapped libc10_cuda.so, empty when PyTorch's CUDA part is not loaded.
std::string MappedTorchLibrary();

// "2.11.0+cu130", from PyTorch's own version file beside `library` (torch/version.py for
// torch/lib/libc10_cuda.so). kNotFound without one.
absl::StatusOr<std::string> TorchRelease(const std::string& library);
// "2.11" of "2.11.0+cu130"; empty when the text begins otherwise.
std::string MinorOf(std::string_view release);

// "2.11", ...: the versions that libraries in `directory` were compiled for, in order.
std::vector<std::string> TorchVersionsIn(const std::string& directory);

class TorchSwap {
 public:
  // `directory`: where our libraries lie. `api` lives as long as the process.
  // `if_not`: what follows where PyTorch is there and cannot be served.
  TorchSwap(std::string directory, const spillway_api* api, IfNotServed if_not)
      : directory_(std::move(directory)), api_(api), if_not_(if_not) {}

  // Installs, if PyTorch is there and nothing is settled yet. Any thread; cheap once settled.
  void Try();

  // Nothing is left to try. Any thread, no lock.
  bool settled() const { return settled_.load(); }

  // "2.11" once it is installed; empty before. Any thread that holds no lock.
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
