// Layers below a file system, on a /sys and a /proc of the test's own.

#include "integration/cli/doctor/disk_layers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

class DiskLayersTest : public ::testing::Test {
 protected:
  DiskLayersTest() {
    char name[] = "/var/tmp/spillway_layers_XXXXXX";
    root_ = ::mkdtemp(name);
    Drive("sda", "1");
    Drive("sdb", "0");
    Drive("nvme0n1", "0");
    Mapped("dm-0", "LVM-abc", {"sda"});
    Mapped("dm-1", "CRYPT-LUKS2-abc", {"nvme0n1"});
    Mapped("dm-2", "LVM-def", {"dm-1"});
  }
  ~DiskLayersTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void Drive(const std::string& name, const std::string& rotates) const {
    Write("/sys/class/block/" + name + "/queue/rotational", rotates);
  }
  void Mapped(const std::string& name, const std::string& uuid, const std::vector<std::string>& below) const {
    Write("/sys/class/block/" + name + "/dm/uuid", uuid);
    for (const std::string& device : below)
      fs::create_directories(root_ + "/sys/class/block/" + name + "/slaves/" + device);
  }
  std::optional<MountFacts> Faster(DriveKind than, std::map<std::string, uint64_t> free = {}) const {
    return FasterMount(
        than,
        [&](const std::string& path) {
          return free.contains(path) ? free[path] : free.empty() ? kGiB : uint64_t{0};
        },
        root_);
  }

  std::string root_;
};

TEST_F(DiskLayersTest, EncryptionIsSeenThroughOtherLayers) {
  EXPECT_EQ(EncryptionOf("dm-1", root_), Encryption::kDmCrypt);
  EXPECT_EQ(EncryptionOf("dm-2", root_), Encryption::kDmCrypt);
  EXPECT_EQ(EncryptionOf("dm-0", root_), Encryption::kNone);
  EXPECT_EQ(EncryptionOf("nvme0n1", root_), Encryption::kNone)
      << "what lies above it is not this file system's";
  Drive("loop0", "0");
  for (const char* name : {"", "sdz", "loop0"}) EXPECT_EQ(EncryptionOf(name, root_), Encryption::kNotKnown);
}

TEST_F(DiskLayersTest, TheSlowestDriveCounts) {
  EXPECT_EQ(DriveKindOf("sda", root_), DriveKind::kRotating);
  EXPECT_EQ(DriveKindOf("dm-2", root_), DriveKind::kNvme);
  Mapped("md0", "", {"nvme0n1", "sdb"});
  EXPECT_EQ(DriveKindOf("md0", root_), DriveKind::kSolidState);
  for (const char* name : {"", "sdz", "loop0"}) EXPECT_EQ(DriveKindOf(name, root_), DriveKind::kNotKnown);
}

TEST_F(DiskLayersTest, AFasterMountIsFound) {
  Write("/proc/self/mountinfo",
        "20 1 8:0 / / rw,relatime shared:1 - ext4 /dev/sda rw\n"
        "21 20 8:16 / /data\\040disk rw - xfs /dev/sdb rw\n"
        "22 20 259:0 / /fast rw - xfs /dev/nvme0n1 rw\n"
        "23 20 259:0 / /frozen ro - xfs /dev/nvme0n1 ro\n"
        "24 20 0:30 / /memory rw - tmpfs tmpfs rw\n"
        "25 20 0:31 / /far rw - nfs server:/far rw");
  EXPECT_EQ(Faster(DriveKind::kRotating)->path, "/fast");
  EXPECT_EQ(Faster(DriveKind::kRotating)->file_system, "xfs");
  EXPECT_EQ(Faster(DriveKind::kRotating, {{"/data disk", kGiB}})->path, "/data disk")
      << "there is no space on the other";
  EXPECT_FALSE(Faster(DriveKind::kNvme));
  fs::remove(root_ + "/proc/self/mountinfo");
  EXPECT_FALSE(Faster(DriveKind::kNotKnown));
}

// By the number of the device: names under /dev/mapper are links.
TEST_F(DiskLayersTest, AMappedDeviceIsFoundByItsNumber) {
  fs::create_directories(root_ + "/sys/dev/block");
  fs::create_symlink("../../class/block/dm-2", root_ + "/sys/dev/block/253:2");
  Write("/proc/self/mountinfo", "21 20 253:2 / /fast rw - ext4 /dev/mapper/group-fast rw");
  EXPECT_EQ(Faster(DriveKind::kRotating)->device, "dm-2");
  EXPECT_EQ(Faster(DriveKind::kRotating)->kind, DriveKind::kNvme);
}

TEST_F(DiskLayersTest, KindsHaveNames) {
  EXPECT_STREQ(NameOf(DriveKind::kNvme), "an NVMe drive");
  EXPECT_STREQ(NameOf(DriveKind::kNotKnown), "a drive of a kind that is not known");
}

}  // namespace
}  // namespace spillway::integration
