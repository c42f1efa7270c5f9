// LoopMount: a small file system of the test's own, mounted by root from a file. Where that is not permitted,
// or the tool that makes the file system is not installed, mounted() is false and problem() says why the test
// skips.

#ifndef SPILLWAY_TESTS_IO_LOOP_MOUNT_H_
#define SPILLWAY_TESTS_IO_LOOP_MOUNT_H_

#include <sys/statvfs.h>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/io/store_helpers.h"

namespace spillway::io {

struct LoopDisk {
  int mebibytes = 0;
  std::string features{};  // of mkfs.ext4 -O, such as "^extent"
  std::string type = "ext4";
  std::string options{};      // of mount -o, such as "data=journal"
  int backing_mebibytes = 0;  // the image's own disk holds no more than this; 0: it holds all
};

class LoopMount {
 public:
  explicit LoopMount(const LoopDisk& disk) : path_(directory_.path() + "/mount") {
    if (!Runs("command -v mkfs." + disk.type)) {
      problem_ = "mkfs." + disk.type + " is not installed";
      return;
    }
    const std::string folder = directory_.path() + "/image";
    const std::string image = folder + "/disk";
    const std::string backing = disk.backing_mebibytes == 0
                                    ? ""
                                    : " && mount -t tmpfs -o size=" + std::to_string(disk.backing_mebibytes) +
                                          "M spillway_test " + folder;
    backed_ = Runs("mkdir " + folder + " " + path_ + backing) && !backing.empty();
    const std::string front = disk.backing_mebibytes == 0 ? "" : " && fallocate -l 32M " + image;
    mounted_ = Runs("truncate -s " + std::to_string(disk.mebibytes) + "M " + image + " && " + Make(disk) +
                    image + front + " && mount -o loop" + (disk.options.empty() ? "" : "," + disk.options) +
                    " " + image + " " + path_);
    // Linux's loop device reports a write as done of which its file could take only a part. One of a single
    // page has no parts.
    if (mounted_ && backed_)
      mounted_ = Runs("device=$(losetup -n -O NAME -j " + image +
                      ") && echo 4 > /sys/block/${device#/dev/}/queue/max_sectors_kb") ||
                 (Unmount(path_), false);
    if (!mounted_) problem_ = "mounting a loop device with " + disk.type + " is not permitted here";
  }
  explicit LoopMount(int mebibytes, const std::string& features = "")
      : LoopMount(LoopDisk{.mebibytes = mebibytes, .features = features}) {}
  ~LoopMount() {
    if (mounted_) Unmount(path_);
    if (backed_) Unmount(directory_.path() + "/image");
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }
  std::string image() const { return directory_.path() + "/image/disk"; }  // the raw disk

  // Whether a command of the shell succeeds; what it writes is dropped.
  static bool Runs(const std::string& command) {
    return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
  }
  static void Unmount(const std::string& path) { Runs("umount " + path + " || umount -l " + path); }

 private:
  static std::string Make(const LoopDisk& disk) {
    const std::string make = "mkfs." + disk.type + " -q ";
    if (disk.type != "ext4") return make;
    // The file system's own blocks lie at the front, which gets its place below: a journal that fails ends
    // all.
    const std::string own = disk.backing_mebibytes == 0 ? "" : "-b 4096 -J size=8,location=16M ";
    return make + "-m 0 " + own + (disk.features.empty() ? "" : "-O " + disk.features + " ");
  }

  TestDirectory directory_;
  const std::string path_;
  std::string problem_;
  bool mounted_ = false;
  bool backed_ = false;  // by a file system of its own
};

// What is free to this user in the file system of `path`.
inline uint64_t FreeBytes(const std::string& path) {
  struct statvfs info;
  return statvfs(path.c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_IO_LOOP_MOUNT_H_
