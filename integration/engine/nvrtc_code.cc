#include "integration/engine/nvrtc_code.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "allocator/driver/content_hash.h"
#include "allocator/driver/nvrtc.h"

namespace spillway::integration {
namespace {

// The majors whose interface is the one that is used.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string Text(std::string_view text) { return std::string(text); }

int NoteObject(struct dl_phdr_info* info, size_t, void* paths) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
    static_cast<std::vector<std::string>*>(paths)->push_back(info->dlpi_name);
  }
  return 0;
}

}  // namespace

std::vector<std::string> LoadedObjects() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(NoteObject, &paths);
  return paths;
}

std::vector<std::string> NvrtcCandidates(const std::vector<std::string>& loaded) {
  std::vector<std::string> candidates;
  const auto add = [&](std::string path) {
    if (std::find(candidates.begin(), candidates.end(), path) == candidates.end())
      candidates.push_back(std::move(path));
  };
  const auto add_folder = [&](const std::string& folder) {
    for (const char* name : kNames) add(folder + "/" + name);
  };
  for (const std::string& path : loaded) {
    if (NameOf(path).starts_with("libnvrtc.so.")) add(path);
  }
  for (const std::string& path : loaded) {
    const std::string_view name = NameOf(path);
    if (name.starts_with("libcudart.so") || name.starts_with("libcublas.so") ||
        name.starts_with("libcufft.so"))
      add_folder(Text(FolderOf(path)));
  }
  for (const std::string& path : loaded) {
    // .../site-packages/torch/lib/libtorch_cuda.so or .../site-packages/nvidia/NAME/lib/..
    const std::string_view folder = FolderOf(path);
    std::string_view packages;
    if (NameOf(path).starts_with("libtorch") && folder.ends_with("/torch/lib")) {
      packages = FolderOf(FolderOf(folder));
    } else if (folder.ends_with("/lib") && NameOf(FolderOf(FolderOf(folder))) == "nvidia") {
      packages = FolderOf(FolderOf(FolderOf(folder)));
    } else {
      continue;
    }
    for (const char* part : {"cu13", "cuda_nvrtc", "cu12"})
      add_folder(absl::StrCat(Text(packages), "/nvidia/", part, "/lib"));
  }
  for (const char* name : kNames) add(name);
  return candidates;
}

absl::StatusOr<std::string> NvrtcCode::Image(int major, int minor) {
  os::MutexLock lock(&mu_);
  const auto found = images_.find(10 * major + minor);
  if (found != images_.end()) return found->second;
  absl::StatusOr<std::string> image = absl::NotFoundError(
      "NVRTC (libnvrtc.so.13 or .12), which comes with PyTorch's CUDA wheels, was not found");
  for (const std::string& path : NvrtcCandidates(LoadedObjects())) {
    if (path.front() == '/' && ::access(path.c_str(), R_OK) != 0) continue;
    auto nvrtc = allocator::Nvrtc::Open(path);
    if (!nvrtc.ok()) continue;
    image = (*nvrtc)->Compile(allocator::content_hash::KernelSource(), major, minor);
    if (image.ok()) break;
  }
  images_.emplace(10 * major + minor, image);
  return image;
}

}  // namespace spillway::integration
