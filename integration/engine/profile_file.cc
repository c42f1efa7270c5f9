#include "integration/engine/profile_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "integration/engine/torch_swap.h"
#include "integration/report/atomic_file.h"
#include "integration/settings/environment.h"
#include "io/os/descriptor.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

// Letters, digits and dots; each run of anything else is one hyphen.
std::string FileWord(const std::string& text) {
  constexpr size_t kMax = 64;
  std::string word;
  for (const char c : text.substr(0, kMax)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (plain) word += c;
    if (!plain && !word.empty() && word.back() != '-') word += '-';
  }
  if (!word.empty() && word.back() == '-') word.pop_back();
  return word;
}

absl::Status WithPath(const std::string& path, const absl::Status& why) {
  return {why.code(), absl::StrCat(path, ": ", why.message())};
}

// Whether the file is one that this user alone may have written.
absl::Status CheckOwner(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid())
    return absl::FailedPreconditionError(path + ": it is not a file of this user");
  return absl::OkStatus();
}

}  // namespace

std::string DefaultProfilePath(const ProfileKey& key) {
  const std::string minor = MinorOf(key.framework);
  return UserCacheFile(
      absl::StrCat("profile-", minor.empty() ? FileWord(key.framework) : minor, "-", FileWord(key.device)));
}

absl::StatusOr<JobFacts> ReadProfile(const std::string& path) {
  const os::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return os::StatusFromErrno(errno, path);
  SPILLWAY_RETURN_IF_ERROR(CheckOwner(path, info));
  if ((info.st_mode & 022) != 0) return absl::FailedPreconditionError(path + ": others may write to it");
  std::string text(kMaxProfileBytes + 1, 0);
  size_t bytes = 0;
  for (ssize_t n = 1; n != 0 && bytes < text.size();) {
    n = ::read(file.get(), text.data() + bytes, text.size() - bytes);
    if (n < 0 && errno != EINTR) return os::StatusFromErrno(errno, path);
    bytes += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  text.resize(bytes);
  auto facts = ParseProfile(text);
  return facts.ok() ? std::move(facts) : WithPath(path, facts.status());
}

absl::Status WriteProfile(const std::string& path, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::filesystem::path cache = std::filesystem::path(UserCacheFile("profile")).parent_path();
  std::error_code ignored;  // the file cannot be made then
  if (!cache.empty() && folder == cache) {
    for (const std::filesystem::path& made : {cache.parent_path(), cache})
      if (!std::filesystem::exists(made, ignored)) ::mkdir(made.c_str(), 0700);
  }
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0) SPILLWAY_RETURN_IF_ERROR(CheckOwner(path, info));
  return WriteFileAtomically(path, text, Readers::kOwnerAlone);
}

}  // namespace spillway::integration
