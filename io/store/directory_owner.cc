#include "io/store/directory_owner.h"

#include <sys/stat.h>
#include <unistd.h>
#include <climits>
#include <deque>
#include <fstream>

namespace spillway::io {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit

uid_t UnknownOwner() {
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t owner = 65534;
  file >> owner;
  return owner;
}

bool Trusted(uid_t owner) {
  const uid_t self = geteuid();
  return self == 0 || owner == 0 || owner == self || owner == UnknownOwner();
}

// Puts the names between the slashes of `path` before the others.
void PutBefore(const std::string& path, std::deque<std::string>* names) {
  size_t end = path.size();
  while (end > 0) {
    const size_t slash = path.rfind('/', end - 1);
    const size_t start = slash == std::string::npos ? 0 : slash + 1;
    if (end > start) names->push_front(path.substr(start, end - start));
    end = start == 0 ? 0 : start - 1;
  }
}

}  // namespace

absl::Status CheckOwners(const std::string& directory, int directory_fd) {
  struct stat info;
  if (fstat(directory_fd, &info) == 0 && !Trusted(info.st_uid)) {
    return absl::PermissionDeniedError("it belongs to user " + std::to_string(info.st_uid) +
                                       ", who is neither this one nor root");
  }
  // Follows the path as the kernel does: name by name, and into each link.
  std::deque<std::string> names;
  PutBefore(directory, &names);
  std::string at = directory.starts_with('/') ? "" : ".";
  for (int links = 0; !names.empty() && links <= kMaxLinks;) {
    const std::string next = at + "/" + names.front();
    names.pop_front();
    char target[PATH_MAX];
    const ssize_t length = readlink(next.c_str(), target, sizeof(target));
    if (length < 0 || lstat(next.c_str(), &info) != 0) {
      at = next;
      continue;
    }
    if (!Trusted(info.st_uid)) {
      return absl::PermissionDeniedError("the symbolic link " + next + " on the way to it belongs to user " +
                                         std::to_string(info.st_uid) + ", who is neither this one nor root");
    }
    ++links;
    PutBefore(std::string(target, static_cast<size_t>(length)), &names);
    if (target[0] == '/') at.clear();
  }
  return absl::OkStatus();
}

}  // namespace spillway::io
