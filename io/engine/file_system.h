// Facts about kinds of file systems: their names, the meaning of a direct transfer there, and a few words for
// people. SpillFile refuses unsuitable ones by them, the probe judges direct transfers by them, and `spillway
// doctor` shows the words. Any thread; a descriptor that cannot be examined counts as an unknown kind.

#ifndef SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_
#define SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_

#include <cstdint>
#include <string>

namespace spillway::io {

struct FileSystemKind {
  std::string name;  // "ext4", "fuse"; "0x..." for an unknown kind
  // False for memory (tmpfs, ramfs) and for NFS, where an unlinked file outlives its killed process.
  bool suitable = true;
  // False when another process or machine, or a cache that is not the kernel's, may still have the bytes of a
  // completed direct write in its memory. Such writes are flushed before they count.
  bool direct_is_on_disk = true;
  std::string known{};  // other effects of spilling there, for people; empty: none
};

// The kind by the number that statfs has for the file system. `on_block_device` tells, for an unknown kind,
// whether it lies on a block device of its own; otherwise somebody else keeps its bytes.
FileSystemKind KindOfMagic(uint32_t magic, bool on_block_device);

// The file system of an open descriptor.
FileSystemKind KindOf(int fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_
