// NvrtcCode: compiles the device's content hash with the NVRTC that PyTorch's wheel brought, found beside the libraries
// that are loaded. Nothing of it is opened before the first image is asked for.

#ifndef SPILLWAY_INTEGRATION_ENGINE_NVRTC_CODE_H_
#define SPILLWAY_INTEGRATION_ENGINE_NVRTC_CODE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/residency/hash_code.h"
#include "io/os/sync.h"

namespace spillway::integration {

// Where NVRTC may be, best first, given the paths of all loaded objects: itself if it is loaded; the folders of CUDA
// libraries that are; the nvidia folders of the Python environment that PyTorch was loaded from; where the loader looks.
std::vector<std::string> NvrtcCandidates(const std::vector<std::string>& loaded);

// The paths of the objects of this process, as the loader names them.
std::vector<std::string> LoadedObjects();

class NvrtcCode : public allocator::HashCode {
 public:
  // Compiled once for each kind of device. kNotFound with where it was looked for when there is no NVRTC.
  absl::StatusOr<std::string> Image(int major, int minor) override;

 private:
  os::Mutex mu_{
      os::LockRank::kRuntime};  // held while it compiles: NVRTC is slow, and another device wants the same
  std::map<int, absl::StatusOr<std::string>> images_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_NVRTC_CODE_H_
