// What is known of kinds of file systems: their names, what a direct transfer means there, and a few words for
// people. SpillFile refuses unsuitable ones by it, the probe judges direct transfers, `spillway doctor` shows the
// words. Any thread; a descriptor that cannot be looked at counts as a kind that is not known.

#ifndef SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_
#define SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_

#include <cstdint>
#include <string>

namespace spillway::io {

struct FileSystemKind {
  std::string name;  // "ext4", "fuse"; "0x..." for a kind that is not known
  // False for memory (tmpfs, ramfs) and for NFS, where an unlinked file outlives its killed process.
  bool suitable = true;
  // False where another process or machine, or a cache that is not the kernel's, may still have in its memory what a
  // direct write has reported. Such writes are flushed before they count.
  bool direct_is_on_disk = true;
  std::string known{};  // what spilling there means beyond this, for people; empty: nothing special
};

// By the number that statfs has for a file system. `on_block_device`: of a kind that is not known, whether it lies on
// a block device of its own; else somebody else keeps its bytes.
FileSystemKind KindOfMagic(uint32_t magic, bool on_block_device);

// The file system of an open descriptor.
FileSystemKind KindOf(int fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_FILE_SYSTEM_H_
