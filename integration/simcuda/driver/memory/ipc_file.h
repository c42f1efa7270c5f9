// Memory that processes share: files without a name, which another process opens through the one that made
// them. No file is left behind, and a handle is good as long as its maker lives and keeps the file.
// Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_IPC_FILE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_IPC_FILE_H_

#include <cstdint>

namespace simcuda {

// The facts by which another process opens the file. Plain bytes, since it travels inside CUDA's handles of
// 64 bytes.
struct IpcFile {
  uint64_t tag;
  uint64_t process;
  uint64_t id;  // among the maker's files
  uint64_t bytes;
  int32_t descriptor;  // the maker's
  int32_t device;      // ordinal, of memory
};
static_assert(sizeof(IpcFile) <= 64);

enum class IpcKind : uint64_t { kMemory = 0x53484d454d313233, kEvent = 0x5348455645313233 };

// Makes a new file of that size. Returns false if the system refuses.
bool MakeIpcFile(IpcKind kind, uint64_t bytes, IpcFile* file);
// Opens a file that any process made. Returns a descriptor of this process, or -1 if it is none of that kind
// or is gone.
int OpenIpcFile(IpcKind kind, const IpcFile& file);
// Returns whether the bytes are a handle of that kind at all.
bool IsIpcFile(IpcKind kind, const IpcFile& file);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_IPC_FILE_H_
