#include "integration/engine/drives.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

class DrivesTest : public ReportFileTest {
 protected:
  std::string Directory(const std::string& name) const {
    fs::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }
};

TEST_F(DrivesTest, TheDriveOfAPartition) {
  fs::create_directories(folder_ + "/sys/devices/nvme0n1/nvme0n1p2");
  fs::create_directories(folder_ + "/sys/class/block");
  std::ofstream(folder_ + "/sys/devices/nvme0n1/nvme0n1p2/partition") << "2\n";
  for (const char* name : {"nvme0n1p2", "nvme0n1"}) {
    const std::string target =
        std::string("../../devices/nvme0n1") + (std::string(name) == "nvme0n1" ? "" : "/nvme0n1p2");
    fs::create_directory_symlink(target, folder_ + "/sys/class/block/" + name);
  }
  EXPECT_EQ(WholeDrive("nvme0n1p2", folder_), "nvme0n1");
  EXPECT_EQ(WholeDrive("nvme0n1", folder_), "nvme0n1");
  EXPECT_EQ(WholeDrive("sdz9", folder_), "sdz9");
  EXPECT_EQ(WholeDrive("", folder_), "");
}

TEST_F(DrivesTest, DirectoriesOfOneFileSystemLieOnOneDrive) {
  EXPECT_FALSE(DriveOf(folder_).empty());
  EXPECT_EQ(DriveOf(Directory("a")), DriveOf(Directory("b")));
  EXPECT_NE(DriveOf(folder_), DriveOf("/proc"));
  EXPECT_EQ(DriveOf(folder_ + "/absent"), "");
}

TEST_F(DrivesTest, RanksOfOtherDirectoriesOfTheDriveWriteToItToo) {
  const std::string a = Directory("a"), b = Directory("b");
  EXPECT_EQ(RanksOnDrive(a, {}, 4), 4) << "no lists: all spill here";
  EXPECT_EQ(RanksOnDrive(a, {{a}, {b}}, 5), 5);
  EXPECT_EQ(RanksOnDrive(a, {{a}, {"/proc"}}, 5), 3);
  EXPECT_EQ(RanksOnDrive(a, {{"/proc", b}, {"/proc"}}, 2), 1);
  EXPECT_EQ(RanksOnDrive(a, {{"/proc"}}, 2), 1) << "the caller itself";
  EXPECT_EQ(RanksOnDrive(folder_ + "/absent", {{folder_ + "/absent"}, {folder_ + "/other"}}, 2), 1);
  EXPECT_EQ(RanksOnDrive(a, {}, 0), 0) << "not known";
}

}  // namespace
}  // namespace spillway::integration
