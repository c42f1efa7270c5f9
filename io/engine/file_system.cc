#include "io/engine/file_system.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <cstdio>

namespace spillway::io {
namespace {

constexpr char kFuse[] =
    "a process serves it and may still have in memory what it reports as written, so each write is flushed; "
    "an open spill file may be seen there under a name that begins with .fuse_";
constexpr char kOverlay[] =
    "a container's own layer: its bytes lie in the file system below it, often that of the machine's system "
    "disk; a volume on a local disk is faster. Mounted with `volatile` it does not flush";
constexpr char kShare[] =
    "another machine or the host keeps the bytes: each write is flushed to it; not tried yet";
constexpr char kCluster[] =
    "a cluster's servers keep the bytes, and every job of the cluster shares them; not tried yet";
constexpr char kZfs[] =
    "new blocks for each overwrite, and a cache of its own before which direct transfers may end: each write "
    "is flushed; not tried yet";
constexpr char kBtrfs[] =
    "the spill file is made without copy-on-write, so without its compression and checksums; after each "
    "growth the file system commits, since it counts allocated space as free until then";
constexpr char kNfs[] = "remote: an unlinked file of a killed process stays, under a name like .nfs...";

struct Row {
  uint32_t magic;
  const char* name;
  bool suitable;
  bool direct_is_on_disk;
  const char* known;
};

constexpr Row kRows[] = {
    {EXT4_SUPER_MAGIC, "ext4", true, true, ""},
    {XFS_SUPER_MAGIC, "xfs", true, true, ""},
    {F2FS_SUPER_MAGIC, "f2fs", true, true, ""},
    {BTRFS_SUPER_MAGIC, "btrfs", true, true, kBtrfs},
    {0xca451a4e, "bcachefs", true, true, ""},
    {OVERLAYFS_SUPER_MAGIC, "overlay", true, true, kOverlay},
    {0x2fc12fc1, "zfs", true, false, kZfs},
    {0x65735546, "fuse", true, false, kFuse},
    {0xff534d42, "cifs", true, false, kShare},
    {0xfe534d42, "smb2", true, false, kShare},
    {0x01021997, "9p", true, false, kShare},
    {0x00c36400, "ceph", true, true, kCluster},
    {0x0bd00bd0, "lustre", true, true, kCluster},
    {0x47504653, "gpfs", true, true, kCluster},
    {0x19830326, "beegfs", true, false, kCluster},
    {NFS_SUPER_MAGIC, "nfs", false, false, kNfs},
    {TMPFS_MAGIC, "tmpfs", false, false, "memory, not a disk"},
    {RAMFS_MAGIC, "ramfs", false, false, "memory, not a disk"},
};

}  // namespace

FileSystemKind KindOfMagic(uint32_t magic, bool on_block_device) {
  for (const Row& row : kRows) {
    if (row.magic == magic) return {row.name, row.suitable, row.direct_is_on_disk, row.known};
  }
  char text[32];
  std::snprintf(text, sizeof(text), "0x%x", magic);
  return {.name = text,
          .direct_is_on_disk = on_block_device,
          .known = on_block_device
                       ? "a kind that is not known: not tried yet"
                       : "a kind that is not known, without a block device: each write is flushed; "
                         "not tried yet"};
}

FileSystemKind KindOf(int fd) {
  struct statfs info;
  struct stat file;
  if (fstatfs(fd, &info) != 0 || fstat(fd, &file) != 0)
    return {.name = "unknown", .direct_is_on_disk = false};
  return KindOfMagic(static_cast<uint32_t>(info.f_type), major(file.st_dev) != 0);
}

}  // namespace spillway::io
