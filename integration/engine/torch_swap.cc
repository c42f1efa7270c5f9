#include "integration/engine/torch_swap.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

constexpr std::string_view kTorchLibrary = "libc10_cuda.so";
constexpr std::string_view kOurPrefix = "libspillway_torch_";

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

int NoteTorchLibrary(struct dl_phdr_info* info, size_t, void* found) {
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const size_t slash = path.rfind('/');
  if (path.substr(slash == std::string_view::npos ? 0 : slash + 1) != kTorchLibrary) return 0;
  *static_cast<std::string*>(found) = std::string(path);
  return 1;
}

}  // namespace

std::string MappedTorchLibrary() {
  std::string path;
  ::dl_iterate_phdr(NoteTorchLibrary, &path);
  return path;
}

absl::StatusOr<std::string> TorchMinorVersion(const std::string& library) {
  // A Python wheel: torch/lib/libc10_cuda.so and torch/version.py. A C++ distribution: lib/ and build-version.
  static const std::regex kPython(R"(^__version__\s*=\s*['"](\d+\.\d+)\..*)");
  static const std::regex kPlain(R"(^(\d+\.\d+)\..*)");
  const std::string parent = DirectoryOf(DirectoryOf(library));
  for (const auto& [file, pattern] :
       {std::pair{parent + "/version.py", &kPython}, std::pair{parent + "/build-version", &kPlain}}) {
    std::ifstream lines(file);
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_match(line, match, *pattern)) return match[1].str();
    }
  }
  return absl::NotFoundError(absl::StrCat("no version of PyTorch beside ", library));
}

std::vector<std::string> TorchVersionsIn(const std::string& directory) {
  std::vector<std::string> versions;
  DIR* folder = ::opendir(directory.c_str());
  if (folder == nullptr) return versions;
  while (const struct dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kOurPrefix) || !name.ends_with(".so")) continue;
    const std::string_view version = name.substr(kOurPrefix.size(), name.size() - kOurPrefix.size() - 3);
    versions.push_back(absl::StrReplaceAll(absl::string_view(version.data(), version.size()), {{"_", "."}}));
  }
  ::closedir(folder);
  std::sort(versions.begin(), versions.end());
  return versions;
}

void TorchSwap::Try() {
  os::MutexLock lock(&mu_);
  if (settled_) return;
  const std::string library = MappedTorchLibrary();
  if (library.empty()) return;
  settled_ = true;
  if (absl::Status status = InstallInto(library); !status.ok()) {
    os::Announce(absl::StrCat("PyTorch is left as it is: ", std::string(status.message())));
  }
}

absl::Status TorchSwap::InstallInto(const std::string& library) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::string version, TorchMinorVersion(library));
  const std::vector<std::string> versions = TorchVersionsIn(directory_);
  if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
    return absl::NotFoundError(absl::StrCat("version ", version, " is unknown here (known: ",
                                            versions.empty() ? "none" : absl::StrJoin(versions, ", "), ")"));
  }
  const std::string path =
      absl::StrCat(directory_, "/libspillway_torch_", absl::StrReplaceAll(version, {{".", "_"}}), ".so");
  // Its needs (libc10, libc10_cuda) are met by name: those libraries are mapped. Never closed: PyTorch calls it until
  // the process ends.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::InternalError(absl::StrCat(::dlerror()));
  auto install = reinterpret_cast<spillway_torch_install_fn>(::dlsym(handle, SPILLWAY_TORCH_INSTALL));
  if (install == nullptr) return absl::InternalError(absl::StrCat(path, " lacks ", SPILLWAY_TORCH_INSTALL));
  char error[512] = "";
  if (install(api_, error, sizeof(error)) != 0) return absl::FailedPreconditionError(error);
  return absl::OkStatus();
}

}  // namespace spillway::integration
