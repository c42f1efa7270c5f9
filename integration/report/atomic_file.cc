#include "integration/report/atomic_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

constexpr int kMaxNames = 16;  // names that somebody else may have taken

// Returns the permissions of the file that is replaced, if it is ours.
std::optional<mode_t> ModeOf(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid())
    return std::nullopt;
  return info.st_mode & 0777;
}

// Returns another name each time, on every host, so nobody can wait for it with a link in a folder of many
// users.
std::string NameBeside(const std::string& path) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) random = static_cast<uint64_t>(::getpid());
  return absl::StrFormat("%s.%016x.tmp", path, random);
}

// One file until it has taken its place, or is gone again. Functions return 0 or an errno value.
class NewFile {
 public:
  NewFile() = default;
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int Open(const std::string& path, mode_t mode, Naming naming) {
    if (naming == Naming::kUnnamedIfPossible) {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      descriptor_ = ::open(folder.empty() ? "." : folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
    }
    for (int i = 0; descriptor_ < 0 && i < kMaxNames; ++i) {
      const std::string name = NameBeside(path);
      descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
      if (descriptor_ >= 0) name_ = name;
      if (descriptor_ < 0 && errno != EEXIST) break;
    }
    return descriptor_ >= 0 ? 0 : errno;
  }

  int Write(const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(descriptor_, text.data() + done, text.size() - done);
      if (n == 0) return EIO;
      if (n < 0 && errno != EINTR) return errno;
      if (n > 0) done += static_cast<size_t>(n);
    }
    return 0;
  }

  int SetMode(mode_t mode) { return ::fchmod(descriptor_, mode) == 0 ? 0 : errno; }

  // Makes the file `path`; this object has none after it.
  int TakePlaceOf(const std::string& path) {
    const std::string unnamed = absl::StrCat("/proc/self/fd/", descriptor_);
    for (int i = 0; name_.empty(); ++i) {
      const std::string name = NameBeside(path);
      if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
        name_ = name;
      else if (errno != EEXIST || i == kMaxNames)
        return errno;
    }
    const int closed = ::close(descriptor_);  // a file system may report only here that there is no space
    descriptor_ = -1;
    if (closed != 0 || ::rename(name_.c_str(), path.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }

 private:
  int descriptor_ = -1;
  std::string name_;  // empty: it has none
};

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, const std::string& text, Readers readers,
                                 Naming naming) {
  const std::optional<mode_t> before = ModeOf(path);
  NewFile file;
  int error = file.Open(path, readers == Readers::kEveryone ? 0644 : 0600, naming);
  if (error == 0 && before && readers != Readers::kOwnerAlone) error = file.SetMode(*before);
  if (error == 0) error = file.Write(text);
  if (error == 0) error = file.TakePlaceOf(path);
  if (error == ENOENT && naming == Naming::kUnnamedIfPossible)  // no /proc to give it a name by
    return WriteFileAtomically(path, text, readers, Naming::kNamed);
  return error == 0 ? absl::OkStatus() : os::StatusFromErrno(error, path);
}

absl::Status CheckFolderOf(const std::string& path) {
  NewFile file;
  const int error = file.Open(path, 0600, Naming::kUnnamedIfPossible);
  return error == 0 ? absl::OkStatus() : os::StatusFromErrno(error, path);
}

}  // namespace spillway::integration
