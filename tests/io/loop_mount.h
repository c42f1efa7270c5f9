// LoopMount: a small ext4 of the test's own, mounted by root from a file. Where that is not permitted,
// mounted() is false and the test says why it skips.

#ifndef SPILLWAY_TESTS_IO_LOOP_MOUNT_H_
#define SPILLWAY_TESTS_IO_LOOP_MOUNT_H_

#include <sys/statvfs.h>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/io/store_helpers.h"

namespace spillway::io {

class LoopMount {
 public:
  // `features`: of mkfs.ext4 -O, such as "^extent".
  explicit LoopMount(int mebibytes, const std::string& features = "")
      : image_(directory_.path() + "/image"), path_(directory_.path() + "/mount") {
    const std::string commands = "truncate -s " + std::to_string(mebibytes) + "M " + image_ +
                                 " && mkfs.ext4 -q -m 0 " + (features.empty() ? "" : "-O " + features + " ") +
                                 image_ + " && mkdir " + path_ + " && mount -o loop " + image_ + " " + path_;
    mounted_ = std::system(("{ " + commands + "; } >/dev/null 2>&1").c_str()) == 0;
  }
  ~LoopMount() {
    if (mounted_ && std::system(("umount " + path_ + " || umount -l " + path_).c_str()) != 0)
      mounted_ = false;
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }

 private:
  TestDirectory directory_;
  const std::string image_;
  const std::string path_;
  bool mounted_ = false;
};

// What is free to this user in the file system of `path`.
inline uint64_t FreeBytes(const std::string& path) {
  struct statvfs info;
  return statvfs(path.c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_IO_LOOP_MOUNT_H_
