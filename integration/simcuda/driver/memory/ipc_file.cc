#include "integration/simcuda/driver/memory/ipc_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace simcuda {
namespace {

using Number = unsigned long long;

constexpr size_t kPathBytes = 96;

// The name that a file of that maker and number has in /proc; descriptors are used again.
void NameOf(const IpcFile& file, char* name) {
  std::snprintf(name, kPathBytes, "simcuda-%llx-%llu-%llu", Number{file.tag}, Number{file.process},
                Number{file.id});
}

}  // namespace

bool MakeIpcFile(IpcKind kind, uint64_t bytes, IpcFile* file) {
  static std::atomic<uint64_t> next_id{1};
  *file = {static_cast<uint64_t>(kind), static_cast<uint64_t>(getpid()), next_id++, bytes, -1, 0};
  char name[kPathBytes];
  NameOf(*file, name);
  file->descriptor = memfd_create(name, MFD_CLOEXEC);
  if (file->descriptor < 0) return false;
  if (ftruncate(file->descriptor, static_cast<off_t>(bytes)) == 0) return true;
  close(file->descriptor);
  return false;
}

bool IsIpcFile(IpcKind kind, const IpcFile& file) { return file.tag == static_cast<uint64_t>(kind); }

int OpenIpcFile(IpcKind kind, const IpcFile& file) {
  if (!IsIpcFile(kind, file)) return -1;
  char path[kPathBytes], found[kPathBytes] = {}, wanted[kPathBytes];
  std::snprintf(path, sizeof(path), "/proc/%llu/fd/%d", Number{file.process}, file.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return -1;
  NameOf(file, wanted);
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
  constexpr char kFolder[] = "/memfd:";
  constexpr size_t kFolderBytes = sizeof(kFolder) - 1;
  const bool right = readlink(path, found, sizeof(found) - 1) > 0 &&
                     std::strncmp(found, kFolder, kFolderBytes) == 0 &&
                     std::strncmp(found + kFolderBytes, wanted, std::strlen(wanted)) == 0 &&
                     found[kFolderBytes + std::strlen(wanted)] == ' ';  // "(deleted)"
  if (right) return descriptor;
  close(descriptor);
  return -1;
}

}  // namespace simcuda
