#include "integration/simcuda/driver/machine/machine_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

constexpr int kPlaces = 64;

struct Place {
  std::atomic<uint64_t> bytes[SIMCUDA_DEVICES_MAX];
};
constexpr off_t kFileBytes = kPlaces * sizeof(Place);

// Locks lie behind the file's bytes: one for each place, and one for the steps.
constexpr off_t kPlaceLocks = kFileBytes;
constexpr off_t kStepLock = kPlaceLocks + kPlaces;

std::mutex g_steps;  // the lock of a step is the process's, not a thread's
int g_file = -1;
int g_place = -1;
Place* g_places = nullptr;

// Locks of the process: the kernel drops them at its end, and no forked child has them.
struct flock LockOf(short type, off_t at) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

bool Refuse(const std::string& file, const char* why) {
  std::fprintf(stderr, "simcuda: SIMCUDA_MACHINE=%s: %s\n", file.c_str(), why);
  return false;
}

bool TakePlace() {
  for (int i = 0; i < kPlaces; ++i) {
    struct flock mine = LockOf(F_WRLCK, kPlaceLocks + i);
    if (fcntl(g_file, F_SETLK, &mine) != 0) continue;
    g_place = i;
    for (std::atomic<uint64_t>& bytes : g_places[i].bytes) bytes.store(0);
    return true;
  }
  return false;
}

}  // namespace

bool EnterMachine(const std::string& file) {
  if (file.empty()) return true;
  g_file = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (g_file < 0 || ftruncate(g_file, kFileBytes) != 0) return Refuse(file, std::strerror(errno));
  void* const mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, g_file, 0);
  if (mapped == MAP_FAILED) return Refuse(file, std::strerror(errno));
  g_places = static_cast<Place*>(mapped);
  return TakePlace() || Refuse(file, "64 processes are on it already");
}

bool SharesMachine() { return g_place >= 0; }

MachineStep::MachineStep() {
  if (!SharesMachine()) return;
  lock_ = std::unique_lock<std::mutex>(g_steps);
  struct flock step = LockOf(F_WRLCK, kStepLock);
  while (fcntl(g_file, F_SETLKW, &step) != 0 && errno == EINTR) {
  }
}

MachineStep::~MachineStep() {
  if (!lock_.owns_lock()) return;
  struct flock step = LockOf(F_UNLCK, kStepLock);
  fcntl(g_file, F_SETLK, &step);
}

void SetHeldBytes(int number, uint64_t bytes) {
  if (SharesMachine()) g_places[g_place].bytes[number].store(bytes);
}

uint64_t BytesOfOthers(int number) {
  if (!SharesMachine()) return 0;
  uint64_t sum = 0;
  for (int i = 0; i < kPlaces; ++i) {
    const uint64_t bytes = i == g_place ? 0 : g_places[i].bytes[number].load();
    if (bytes == 0) continue;
    struct flock lock = LockOf(F_WRLCK, kPlaceLocks + i);
    const bool lives = fcntl(g_file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (lives) sum += bytes;
  }
  return sum;
}

std::string MachineName() {
  struct stat status = {};
  if (!SharesMachine() || fstat(g_file, &status) != 0) return "-device-";
  char name[9];
  std::snprintf(name, sizeof(name), "%08x",
                static_cast<unsigned>(status.st_ino * 2654435761u + status.st_dev));
  return name;
}

}  // namespace simcuda
