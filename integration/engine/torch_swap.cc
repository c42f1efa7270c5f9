#include "integration/engine/torch_swap.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
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

int RecordTorchLibrary(struct dl_phdr_info* info, size_t, void* found) {
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const size_t slash = path.rfind('/');
  if (path.substr(slash == std::string_view::npos ? 0 : slash + 1) != kTorchLibrary) return 0;
  *static_cast<std::string*>(found) = std::string(path);
  return 1;
}

size_t DigitsAt(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of("0123456789", at), text.size()) - at;
}

// Returns the string of ` = 'string'`, without its quotation mark at the front; empty if the text has another
// form.
std::string_view AfterEquals(std::string_view text) {
  for (const std::string_view mark : {"=", "'\""}) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (text.empty() || mark.find(text.front()) == std::string_view::npos) return "";
    text.remove_prefix(1);
  }
  return text;
}

}  // namespace

std::string MappedTorchLibrary() {
  std::string path;
  ::dl_iterate_phdr(RecordTorchLibrary, &path);
  return path;
}

std::string MinorOf(std::string_view release) {
  const size_t major = DigitsAt(release, 0);
  if (major == 0 || release.substr(major, 1) != ".") return "";
  const size_t minor = DigitsAt(release, major + 1);
  const size_t end = major + 1 + minor;
  if (minor == 0 || release.substr(end, 1) != ".") return "";
  return std::string(release.substr(0, end));
}

absl::StatusOr<std::string> TorchRelease(const std::string& library) {
  // A Python wheel has torch/lib/libc10_cuda.so and torch/version.py, a C++ distribution lib/ and
  // build-version.
  const std::string parent = DirectoryOf(DirectoryOf(library));
  for (const auto& [file, head] :
       {std::pair{parent + "/version.py", "__version__"}, std::pair{parent + "/build-version", ""}}) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      const std::string_view text = line;
      if (!text.starts_with(head)) continue;
      const std::string_view found = *head == 0 ? text : AfterEquals(text.substr(std::strlen(head)));
      if (!MinorOf(found).empty()) return std::string(found.substr(0, found.find_first_of(" \t\r'\"")));
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
  if (settled_.load()) return;
  const std::string library = MappedTorchLibrary();
  if (library.empty()) return;
  const absl::Status status = InstallInto(library);
  if (absl::IsUnavailable(status)) return;
  settled_.store(true);
  if (!status.ok()) {
    ReportNotServed(absl::StrCat("PyTorch is left as it is: ", std::string(status.message())), if_not_);
  }
}

absl::Status TorchSwap::InstallInto(const std::string& library) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::string release, TorchRelease(library));
  const std::string version = MinorOf(release);
  const std::vector<std::string> versions = TorchVersionsIn(directory_);
  if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
    return absl::NotFoundError(absl::StrCat(
        "this Spillway supports PyTorch ", versions.empty() ? "(none)" : absl::StrJoin(versions, ", "),
        ", and ", version, " is installed; build Spillway with this Python (SPILLWAY_PYTHON) to support it"));
  }
  const std::string path =
      absl::StrCat(directory_, "/libspillway_torch_", absl::StrReplaceAll(version, {{".", "_"}}), ".so");
  // The libraries that it needs (libc10, libc10_cuda) are found by name, since they are mapped. It is never
  // closed: PyTorch calls it until the process ends.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::InternalError(absl::StrCat(::dlerror()));
  auto install = reinterpret_cast<spillway_torch_install_fn>(::dlsym(handle, SPILLWAY_TORCH_INSTALL));
  if (install == nullptr) return absl::InternalError(absl::StrCat(path, " lacks ", SPILLWAY_TORCH_INSTALL));
  char error[512] = "";
  const int answer = install(api_, release.c_str(), error, sizeof(error));
  if (answer == SPILLWAY_TORCH_NOT_YET) return absl::UnavailableError(error);
  if (answer != 0) return absl::FailedPreconditionError(error);
  if (error[0] != 0) os::Log(os::LogLevel::kDebug, error);
  installed_version_ = version;
  return absl::OkStatus();
}

}  // namespace spillway::integration
