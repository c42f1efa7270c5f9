#include "tests/fakes/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>

namespace spillway::fakes {
namespace {

using allocator::CudaDriver;

// One number for each call, the driver's first.
enum Call : int {
#define DRIVER_ENTRY(symbol) k_##symbol,
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY
  kFirstOfSystem,
#define SYSTEM_CALL(name) k_##name,
#include "tests/fakes/failing_calls.def"
#undef SYSTEM_CALL
  kCalls
};

constexpr const char* kNames[] = {
#define DRIVER_ENTRY(symbol) #symbol,
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY
    "",
#define SYSTEM_CALL(name) #name,
#include "tests/fakes/failing_calls.def"
#undef SYSTEM_CALL
};
static_assert(std::size(kNames) == kCalls);

std::atomic<uint64_t> counts[kCalls];
std::atomic<bool> armed{false};
std::atomic<bool> reached{false};
int target = -1;          // set before `armed`
uint64_t target_nth = 0;  // likewise
FailMode target_mode = FailMode::kNone;

const CudaDriver* real_driver = nullptr;
CUcontext real_context = nullptr;

std::atomic<int64_t> chunks{0}, mapped{0}, streams{0}, registered{0}, reserved{0};

void FailDevice() {
  static const auto fail =
      reinterpret_cast<int (*)(int, const char*)>(dlsym(RTLD_DEFAULT, "simcuda_fail_device"));
  real_driver->cuCtxPushCurrent_v2(real_context);
  fail(kStickyError, "a call failed on purpose");
  real_driver->cuCtxPopCurrent_v2(nullptr);
}

// Counts one call, and says whether it is to fail by itself.
bool Fails(int call) {
  if (!armed.load(std::memory_order_acquire)) return false;
  const uint64_t count = ++counts[call];
  if (call != target || count < target_nth || (count > target_nth && target_mode != FailMode::kFromThenOn))
    return false;
  reached.store(true);
  switch (target_mode) {
    case FailMode::kNone: return false;
    case FailMode::kOnce:
    case FailMode::kFromThenOn: return true;
    case FailMode::kSticky: FailDevice(); return false;  // the call itself answers with it
    case FailMode::kKill: kill(getpid(), SIGKILL); return false;
    case FailMode::kLate: std::this_thread::sleep_for(kLateness); return false;
  }
  return false;
}

// An account of what the driver gave, by the calls that change them.
template <int kCall, typename... Args>
void Enter(Args... args) {
  if constexpr (kCall == k_cuMemCreate) ++chunks;
  if constexpr (kCall == k_cuMemRelease) --chunks;
  if constexpr (kCall == k_cuMemMap) {
    [](CUdeviceptr, size_t bytes, auto...) { mapped += static_cast<int64_t>(bytes); }(args...);
  }
  if constexpr (kCall == k_cuMemUnmap) {
    [](CUdeviceptr, size_t bytes) { mapped -= static_cast<int64_t>(bytes); }(args...);
  }
  if constexpr (kCall == k_cuStreamCreateWithPriority) ++streams;
  if constexpr (kCall == k_cuStreamDestroy_v2) --streams;
  if constexpr (kCall == k_cuMemHostRegister_v2) ++registered;
  if constexpr (kCall == k_cuMemHostUnregister) --registered;
  if constexpr (kCall == k_cuMemAddressReserve) ++reserved;
  if constexpr (kCall == k_cuMemAddressFree) --reserved;
}

CUresult ErrorOf(int call) { return call == k_cuMemCreate ? CUDA_ERROR_OUT_OF_MEMORY : kPlainError; }

template <int kCall, auto kMember, typename Function>
struct Counted;
template <int kCall, auto kMember, typename... Args>
struct Counted<kCall, kMember, CUresult (*)(Args...)> {
  static CUresult Call(Args... args) {
    if (Fails(kCall)) return ErrorOf(kCall);
    const CUresult result = (real_driver->*kMember)(args...);
    if (result == CUDA_SUCCESS) Enter<kCall>(args...);
    return result;
  }
};

int NumberOf(const std::string& name) {
  for (int i = 0; i < kCalls; ++i) {
    if (name == kNames[i]) return i;
  }
  return -1;
}

}  // namespace

const CudaDriver* CountedDriver(const CudaDriver* real, CUcontext context) {
  real_driver = real;
  real_context = context;
  static CudaDriver counted;
  counted = *real;
#define DRIVER_ENTRY(symbol)   \
  if (real->symbol != nullptr) \
    counted.symbol = &Counted<k_##symbol, &CudaDriver::symbol, decltype(&::symbol)>::Call;
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY
  return &counted;
}

void Arm(const std::string& name, uint64_t nth, FailMode mode) {
  for (std::atomic<uint64_t>& count : counts) count = 0;
  target = NumberOf(name);
  target_nth = nth;
  target_mode = mode;
  reached = false;
  armed.store(true, std::memory_order_release);
}

void Disarm() { armed.store(false, std::memory_order_release); }
bool Reached() { return reached.load(); }

std::vector<CallCount> Counts() {
  std::vector<CallCount> result;
  for (int i = 0; i < kCalls; ++i) {
    if (counts[i] != 0) result.push_back({kNames[i], i < kFirstOfSystem, counts[i]});
  }
  return result;
}

DriverObjects Objects() { return {chunks, mapped, streams, registered, reserved}; }

}  // namespace spillway::fakes

// ---- The operating system's calls. The linker sends the core's calls of `name` to __wrap_name.

using spillway::fakes::Fails;
namespace calls = spillway::fakes;

extern "C" {

#define FAILS_WITH(name, error, answer) \
  if (Fails(calls::k_##name)) {         \
    errno = error;                      \
    return answer;                      \
  }

int __real_open(const char*, int, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  FAILS_WITH(open, EMFILE, -1)
  return __real_open(path, flags, mode);
}
int __real_openat(int, const char*, int, ...);
int __wrap_openat(int directory, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  FAILS_WITH(openat, EMFILE, -1)
  return __real_openat(directory, path, flags, mode);
}
int __real_close(int);
int __wrap_close(int fd) {
  const int result = __real_close(fd);  // the descriptor is gone in any case
  FAILS_WITH(close, EIO, -1)
  return result;
}
int __real_unlinkat(int, const char*, int);
int __wrap_unlinkat(int directory, const char* path, int flags) {
  FAILS_WITH(unlinkat, EACCES, -1)
  return __real_unlinkat(directory, path, flags);
}
int __real_fallocate(int, int, off_t, off_t);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  FAILS_WITH(fallocate, ENOSPC, -1)
  return __real_fallocate(fd, mode, offset, bytes);
}
int __real_ftruncate(int, off_t);
int __wrap_ftruncate(int fd, off_t bytes) {
  FAILS_WITH(ftruncate, EIO, -1)
  return __real_ftruncate(fd, bytes);
}
int __real_fstatvfs(int, struct statvfs*);
int __wrap_fstatvfs(int fd, struct statvfs* info) {
  FAILS_WITH(fstatvfs, EIO, -1)
  return __real_fstatvfs(fd, info);
}
int __real_fstatfs(int, struct statfs*);
int __wrap_fstatfs(int fd, struct statfs* info) {
  FAILS_WITH(fstatfs, EIO, -1)
  return __real_fstatfs(fd, info);
}
int __real_fstat(int, struct stat*);
int __wrap_fstat(int fd, struct stat* info) {
  FAILS_WITH(fstat, EIO, -1)
  return __real_fstat(fd, info);
}
int __real_getrlimit(int, struct rlimit*);
int __wrap_getrlimit(int resource, struct rlimit* limit) {
  FAILS_WITH(getrlimit, EINVAL, -1)
  return __real_getrlimit(resource, limit);
}
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  FAILS_WITH(pread, EIO, -1)
  return __real_pread(fd, data, bytes, offset);
}
ssize_t __real_pwrite(int, const void*, size_t, off_t);
ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  FAILS_WITH(pwrite, EIO, -1)
  return __real_pwrite(fd, data, bytes, offset);
}
void* __real_mmap(void*, size_t, int, int, int, off_t);
void* __wrap_mmap(void* hint, size_t bytes, int protection, int flags, int fd, off_t offset) {
  FAILS_WITH(mmap, ENOMEM, MAP_FAILED)
  return __real_mmap(hint, bytes, protection, flags, fd, offset);
}
int __real_munmap(void*, size_t);
int __wrap_munmap(void* start, size_t bytes) {
  FAILS_WITH(munmap, ENOMEM, -1)
  return __real_munmap(start, bytes);
}
int __real_madvise(void*, size_t, int);
int __wrap_madvise(void* start, size_t bytes, int advice) {
  FAILS_WITH(madvise, EINVAL, -1)
  return __real_madvise(start, bytes, advice);
}
int __real_eventfd(unsigned, int);
int __wrap_eventfd(unsigned value, int flags) {
  FAILS_WITH(eventfd, EMFILE, -1)
  return __real_eventfd(value, flags);
}
// Of all others, only the barrier: glibc has no name for it.
long __real_syscall(long, ...);
long __wrap_syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(more, long);
  va_end(more);
  if (number == SYS_membarrier) FAILS_WITH(syscall, ENOMEM, -1)
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                        arguments[5]);
}

// io_uring answers with the error itself.
#define FAILS_BY(name, error) \
  if (Fails(calls::k_##name)) return -error;

int __real_io_uring_queue_init(unsigned, struct io_uring*, unsigned);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  FAILS_BY(io_uring_queue_init, ENOMEM)
  return __real_io_uring_queue_init(entries, ring, flags);
}
int __real_io_uring_register_files(struct io_uring*, const int*, unsigned);
int __wrap_io_uring_register_files(struct io_uring* ring, const int* files, unsigned count) {
  FAILS_BY(io_uring_register_files, EMFILE)
  return __real_io_uring_register_files(ring, files, count);
}
int __real_io_uring_submit(struct io_uring*);
int __wrap_io_uring_submit(struct io_uring* ring) {
  FAILS_BY(io_uring_submit, ENOMEM)
  return __real_io_uring_submit(ring);
}
int __real_io_uring_submit_and_wait_timeout(struct io_uring*, struct io_uring_cqe**, unsigned,
                                            struct __kernel_timespec*, sigset_t*);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring* ring, struct io_uring_cqe** cqe, unsigned count,
                                            struct __kernel_timespec* limit, sigset_t* mask) {
  FAILS_BY(io_uring_submit_and_wait_timeout, ENOMEM)
  return __real_io_uring_submit_and_wait_timeout(ring, cqe, count, limit, mask);
}

// std::thread::_M_start_thread(std::unique_ptr<std::thread::_State>, void (*)()): where a thread is made.
using StartArgument = std::unique_ptr<std::thread::_State>;
void __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread*, StartArgument, void (*)());
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, StartArgument state, void (*depend)()) {
  if (Fails(calls::k_thread_start)) throw std::system_error(EAGAIN, std::generic_category(), "thread");
  __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
      thread, std::move(state), depend);
}

}  // extern "C"
