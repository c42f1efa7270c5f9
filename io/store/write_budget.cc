#include "io/store/write_budget.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "io/os/descriptor.h"
#include "io/os/errno.h"
#include "io/store/checksum.h"
#include "io/store/range_lock.h"

namespace spillway::io {
namespace {

constexpr uint64_t kFreePart = 16;  // 1 / kFreePart of the budget must be free before it counts as unspent
constexpr int kLockTries = 20;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);

// One line of constant length, written by one call. Its checksum distinguishes a part of it from the whole.
constexpr char kLine[] = "spillway-writes 1 %020" PRIu64 " %020" PRId64 " %016" PRIx64 "\n";
constexpr size_t kLineBytes = sizeof("spillway-writes 1 ") - 1 + 20 + 1 + 20 + 1 + 16 + 1;

uint64_t ChecksumOf(uint64_t used_bytes, int64_t at) {
  const std::array<uint64_t, 2> words = {used_bytes, static_cast<uint64_t>(at)};
  return ComputeChecksum(words.data(), sizeof(words), /*seed=*/1).low;
}

bool TakeLock(int fd) {
  for (int i = 0; i < kLockTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenTries);
    struct flock all = LockOf(F_WRLCK, 0, 0);
    if (fcntl(fd, F_OFD_SETLK, &all) == 0) return true;
  }
  return false;
}

}  // namespace

WriteBudget::WriteBudget(Options options) : options_(std::move(options)) {
  const os::MutexLock lock(&mu_);
  state_.at = options_.unix_nanos();
}

double WriteBudget::bytes_per_second() const {
  return static_cast<double>(options_.bytes) / std::chrono::duration<double>(options_.interval).count();
}

// Bytes of the state that are still in use. A clock that was set back frees nothing.
uint64_t WriteBudget::StillUsed(const State& state, int64_t now) const {
  const double seconds = static_cast<double>(std::max<int64_t>(0, now - state.at)) / 1e9;
  const double freed = bytes_per_second() * seconds;
  return freed >= static_cast<double>(state.used_bytes) ? 0 : state.used_bytes - static_cast<uint64_t>(freed);
}

uint64_t WriteBudget::UsedLocked(int64_t now) const {
  return StillUsed(state_, now) + unrecorded_.load(std::memory_order_relaxed);
}

bool WriteBudget::spent() const {
  const os::MutexLock lock(&mu_);
  const uint64_t used = UsedLocked(options_.unix_nanos());
  spent_ = used >= (spent_ ? options_.bytes - options_.bytes / kFreePart : options_.bytes);
  return spent_;
}

uint64_t WriteBudget::left_bytes() const {
  const os::MutexLock lock(&mu_);
  return options_.bytes - std::min(options_.bytes, UsedLocked(options_.unix_nanos()));
}

std::chrono::nanoseconds WriteBudget::Until(uint64_t used_bytes, uint64_t most_bytes) const {
  if (used_bytes <= most_bytes) return std::chrono::nanoseconds::zero();
  const double seconds = static_cast<double>(used_bytes - most_bytes) / bytes_per_second();
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9) + 1);
}

std::chrono::nanoseconds WriteBudget::UntilFree() const {
  if (!spent()) return std::chrono::nanoseconds::zero();
  const os::MutexLock lock(&mu_);
  return Until(UsedLocked(options_.unix_nanos()), options_.bytes - options_.bytes / kFreePart);
}

std::chrono::nanoseconds WriteBudget::UntilNextWrite() const {
  const os::MutexLock lock(&mu_);
  return Until(UsedLocked(options_.unix_nanos()), options_.bytes - 1);
}

// ---- The record.

absl::Status WriteBudget::Record() {
  const int64_t now = options_.unix_nanos();
  uint64_t unrecorded;
  {
    const os::MutexLock lock(&mu_);
    const uint64_t counted = unrecorded_.exchange(0, std::memory_order_relaxed);
    state_ = {StillUsed(state_, now) + counted, now};
    unrecorded = unrecorded_bytes_ += counted;
  }
  if (options_.path.empty()) return absl::OkStatus();
  State of_all;
  absl::Status status = ExchangeRecord(unrecorded, now, &of_all);
  if (of_all.at == 0) return status;  // nothing was written
  const os::MutexLock lock(&mu_);
  state_ = of_all;
  unrecorded_bytes_ -= unrecorded;
  return status;
}

// Adds to the record, and returns it. `state` stays unchanged on failure.
absl::Status WriteBudget::ExchangeRecord(uint64_t unrecorded, int64_t now, State* state) const {
  const std::filesystem::path path = options_.path;
  std::error_code ignored;  // opening the file fails then
  for (const std::filesystem::path& folder : {path.parent_path().parent_path(), path.parent_path()})
    if (!std::filesystem::exists(folder, ignored)) mkdir(folder.c_str(), 0700);
  // Closing the file ends the lock.
  const os::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file.get() < 0) return os::StatusFromErrno(errno, path.string());
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return os::StatusFromErrno(errno, path.string());
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid())
    return absl::FailedPreconditionError(path.string() + ": it is not a file of this user");
  if (!TakeLock(file.get())) return absl::UnavailableError(path.string() + ": another process has it locked");

  std::array<char, kLineBytes + 1> text{};
  const ssize_t length = pread(file.get(), text.data(), kLineBytes, 0);
  if (length < 0) return os::StatusFromErrno(errno, path.string());
  State found;
  uint64_t checksum = 0;
  const bool whole = std::sscanf(text.data(), "spillway-writes 1 %" SCNu64 " %" SCNd64 " %" SCNx64,
                                 &found.used_bytes, &found.at, &checksum) == 3 &&
                     checksum == ChecksumOf(found.used_bytes, found.at);
  // The time is always the present one. If the record is from the future, by a clock that was wrong, nothing
  // has come free.
  const State after = {(whole ? StillUsed(found, now) : 0) + unrecorded, now};
  std::snprintf(text.data(), text.size(), kLine, after.used_bytes, after.at,
                ChecksumOf(after.used_bytes, after.at));
  if (pwrite(file.get(), text.data(), kLineBytes, 0) != static_cast<ssize_t>(kLineBytes))
    return os::StatusFromErrno(errno, path.string());
  *state = after;
  if (whole || length == 0) return absl::OkStatus();
  return absl::DataLossError(path.string() + ": it was damaged, and begins anew");
}

}  // namespace spillway::io
