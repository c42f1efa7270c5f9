// What lies below a directory's file system, as the kernel shows it under /sys: whether a layer of it encrypts, and
// what kind of drive is at the bottom; and whether another mount has a faster kind. `spillway doctor` asks. Nothing is
// measured, and nothing fails: what the kernel does not show is not known. Any thread. `root`: before "/sys" and
// "/proc", for tests.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace spillway::integration {

// By the kernel's device mapper (dm-crypt, LUKS). What a drive or a file system encrypts by itself is not seen.
enum class Encryption : uint8_t { kNotKnown, kNone, kDmCrypt };

// Of a block device by its name in /sys/class/block ("dm-0", "nvme0n1p2"), with the devices below it.
Encryption EncryptionOf(const std::string& device, const std::string& root = "");

// Kinds of drives, the slower first.
enum class DriveKind : uint8_t { kNotKnown, kRotating, kSolidState, kNvme };

// The slowest drive below a block device.
DriveKind DriveKindOf(const std::string& device, const std::string& root = "");

struct MountFacts {
  std::string path;
  std::string file_system;  // "xfs"
  std::string device;       // "nvme0n1"
  DriveKind kind = DriveKind::kNotKnown;
  uint64_t free_bytes = 0;
};

// Of the mounted file systems on local drives, the one with the fastest kind of drive, and of equal ones the one with
// the most free space, if its kind is faster than `than`. `free_bytes` returns what a file system has free beyond its
// reserve for spill files: 0 for one that is no choice.
std::optional<MountFacts> FasterMount(DriveKind than,
                                      const std::function<uint64_t(const std::string& path)>& free_bytes,
                                      const std::string& root = "");

// "an NVMe drive"; for people.
const char* NameOf(DriveKind kind);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DISK_LAYERS_H_
