// The layers below a directory's file system, as the kernel shows them under /sys: whether one of them
// encrypts, what kind of drive is at the bottom, and whether another mount has a faster kind. `spillway
// doctor` asks. It measures nothing, and no call fails: a fact that the kernel does not show is not known.
// Thread-safe. `root`: prefix of "/sys" and "/proc", for tests.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace spillway::integration {

// Encryption by the kernel's device mapper (dm-crypt, LUKS). Encryption by a drive or a file system itself is
// not seen.
enum class Encryption : uint8_t { kNotKnown, kNone, kDmCrypt };

// Returns the encryption of a block device by its name in /sys/class/block ("dm-0", "nvme0n1p2"), with the
// devices below it.
Encryption EncryptionOf(const std::string& device, const std::string& root = "");

// Kinds of drives, the slower first.
enum class DriveKind : uint8_t { kNotKnown, kRotating, kSolidState, kNvme };

// Returns the kind of the slowest drive below a block device.
DriveKind DriveKindOf(const std::string& device, const std::string& root = "");

struct MountFacts {
  std::string path;
  std::string file_system;  // "xfs"
  std::string device;       // "nvme0n1"
  DriveKind kind = DriveKind::kNotKnown;
  uint64_t free_bytes = 0;
};

// Returns the mounted file system on the fastest kind of local drive, if that kind is faster than `than`;
// among equal ones, that with the most free space. `free_bytes` returns what a file system has free beyond
// its reserve for spill files: 0 for one that is no choice.
std::optional<MountFacts> FasterMount(DriveKind than,
                                      const std::function<uint64_t(const std::string& path)>& free_bytes,
                                      const std::string& root = "");

// Returns a name for people: "an NVMe drive".
const char* NameOf(DriveKind kind);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_
