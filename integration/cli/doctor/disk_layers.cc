#include "integration/cli/doctor/disk_layers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "integration/engine/drives.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLayers = 16;

bool IsLoop(const std::string& device) { return absl::StartsWith(device, "loop"); }

std::string FirstLineOf(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string FolderOf(const std::string& device, const std::string& root) {
  return absl::StrCat(root, "/sys/class/block/", device);
}

// Returns the devices that a mapped one consists of; empty for a drive and its partitions.
std::vector<std::string> Below(const std::string& device, const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(FolderOf(device, root) + "/slaves", error))
    names.push_back(entry.path().filename());
  return names;
}

Encryption EncryptionAt(const std::string& device, const std::string& root, int layers) {
  if (absl::StartsWith(FirstLineOf(FolderOf(device, root) + "/dm/uuid"), "CRYPT-"))
    return Encryption::kDmCrypt;
  if (layers == 0) return Encryption::kNotKnown;
  for (const std::string& name : Below(device, root)) {
    if (EncryptionAt(name, root, layers - 1) == Encryption::kDmCrypt) return Encryption::kDmCrypt;
  }
  return Encryption::kNone;
}

DriveKind KindAt(const std::string& device, const std::string& root, int layers) {
  const std::vector<std::string> below = Below(device, root);
  if (!below.empty() && layers > 0) {
    DriveKind slowest = DriveKind::kNvme;
    for (const std::string& name : below) slowest = std::min(slowest, KindAt(name, root, layers - 1));
    return slowest;
  }
  const std::string drive = WholeDrive(device, root);
  if (absl::StartsWith(drive, "nvme")) return DriveKind::kNvme;
  if (IsLoop(drive)) return DriveKind::kNotKnown;
  const std::string rotates = FirstLineOf(FolderOf(drive, root) + "/queue/rotational");
  return rotates == "0"   ? DriveKind::kSolidState
         : rotates == "1" ? DriveKind::kRotating
                          : DriveKind::kNotKnown;
}

// mountinfo writes a space, a tab, a newline and a backslash as octal numbers.
std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Reads one line of mountinfo. Returns nothing unless it is a file system that suits spill files, on a drive
// of its own.
std::optional<MountFacts> MountOf(const std::string& line, const std::string& root) {
  std::istringstream words(line);
  std::string id, parent, number, top, path, options, word, type, source;
  words >> id >> parent >> number >> top >> path >> options;
  while (words >> word && word != "-") continue;
  words >> type >> source;
  if (!absl::StartsWith(source, "/dev/") || !absl::StartsWith(options, "rw")) return std::nullopt;
  if (type != "ext4" && type != "xfs" && type != "btrfs" && type != "f2fs") return std::nullopt;
  std::error_code error;
  // The device is found by its number, since names such as /dev/mapper/x are links; btrfs has a number of its
  // own.
  fs::path device = fs::read_symlink(absl::StrCat(root, "/sys/dev/block/", number), error).filename();
  if (error) device = fs::path(source).filename();
  return MountFacts{Unescaped(path), type, device, DriveKindOf(device, root), 0};
}

}  // namespace

Encryption EncryptionOf(const std::string& device, const std::string& root) {
  std::error_code error;
  // A loop device is a file of another file system.
  const bool known = !device.empty() && !IsLoop(device) && fs::exists(FolderOf(device, root), error);
  if (!known) return Encryption::kNotKnown;
  return EncryptionAt(device, root, kMaxLayers);
}

DriveKind DriveKindOf(const std::string& device, const std::string& root) {
  return device.empty() ? DriveKind::kNotKnown : KindAt(device, root, kMaxLayers);
}

std::optional<MountFacts> FasterMount(DriveKind than,
                                      const std::function<uint64_t(const std::string& path)>& free_bytes,
                                      const std::string& root) {
  std::optional<MountFacts> best;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    std::optional<MountFacts> mount = MountOf(line, root);
    if (!mount || mount->kind <= than || (best && mount->kind < best->kind)) continue;
    mount->free_bytes = free_bytes(mount->path);
    const bool slower = best && mount->kind == best->kind && mount->free_bytes <= best->free_bytes;
    if (mount->free_bytes > 0 && !slower) best = mount;
  }
  return best;
}

const char* NameOf(DriveKind kind) {
  switch (kind) {
    case DriveKind::kNvme: return "an NVMe drive";
    case DriveKind::kSolidState: return "a solid-state drive";
    case DriveKind::kRotating: return "a rotating drive";
    case DriveKind::kNotKnown: break;
  }
  return "a drive of a kind that is not known";
}

}  // namespace spillway::integration
