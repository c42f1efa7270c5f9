#include "tests/simulation/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/sync.h"
#include "io/os/thread.h"
#include "io/store/disk_order.h"
#include "io/store/probe.h"
#include "io/store/spill_file.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

Disk* disk = nullptr;

}  // namespace

Disk::Disk(const Options& options, Random* random) : options_(options), random_(random) { disk = this; }
Disk::~Disk() { disk = nullptr; }
Disk* Disk::current() { return disk; }

int Disk::Open() {
  files_.push_back(std::make_unique<File>());
  return static_cast<int>(files_.size()) - 1;
}

void Disk::Close(int file) { files_[static_cast<size_t>(file)]->open = false; }

bool Disk::Resize(int file, uint64_t bytes) {
  scheduler().SwitchPoint();
  const int one_in = options_.refuse_growth_one_in;
  if (bytes > options_.most_bytes || (one_in > 0 && random_->OneIn(static_cast<uint32_t>(one_in))))
    return false;
  files_[static_cast<size_t>(file)]->bytes = bytes;
  scheduler().RecordProgress();
  return true;
}

uint64_t Disk::SpaceOf(int file) const {
  return options_.most_bytes - std::min(options_.most_bytes, files_[static_cast<size_t>(file)]->bytes);
}

void Disk::FallIll(Sickness sickness, int64_t nanos) {
  sickness_ = sickness;
  ill_until_ = scheduler().now() + nanos;
}

bool Disk::Fails(io::IoOp op) const {
  if (sickness_ == Sickness::kSilent || scheduler().now() >= ill_until_) return false;
  if (sickness_ == Sickness::kAllFail) return true;
  return (op == io::IoOp::kRead) == (sickness_ == Sickness::kReadsFail);
}

int32_t Disk::Move(int number, const io::IoRequest& request) {
  ++transfers_;
  const auto chance = [this](int one_in) {
    return one_in > 0 && random_->OneIn(static_cast<uint32_t>(one_in));
  };
  if (chance(options_.slow_one_in)) {
    scheduler().SleepUntil(scheduler().now() + (int64_t{10'000} << random_->Below(12)));
  }
  scheduler().SwitchPoint();
  while (sickness_ == Sickness::kSilent && scheduler().now() < ill_until_) scheduler().SleepUntil(ill_until_);
  if (Fails(request.op)) return sickness_ == Sickness::kFull ? -ENOSPC : -EIO;
  if (chance(options_.fail_one_in)) return -EIO;
  File& file = *files_[static_cast<size_t>(number)];
  if (!file.open) scheduler().Fail("a transfer touches a file that is closed");
  uint32_t length = request.length;
  if (length > io::kPageBytes && chance(options_.short_one_in)) length = io::kPageBytes;
  if (request.offset + length > file.bytes) scheduler().Fail("a transfer goes beyond the end of its file");
  constexpr uint32_t kHalf = io::kPageBytes / 2;
  for (uint32_t at = 0; at < length; at += kHalf) {
    if (at > 0) scheduler().SwitchPoint();
    auto& page = file.pages[(request.offset + at) / io::kPageBytes];
    page.resize(io::kPageBytes);
    char* const there = page.data() + (request.offset + at) % io::kPageBytes;
    char* const here = static_cast<char*>(request.buffer) + at;
    if (request.op == io::IoOp::kWrite) {
      std::memcpy(there, here, kHalf);
    } else {
      std::memcpy(here, there, kHalf);
    }
  }
  scheduler().RecordProgress();
  return static_cast<int32_t>(length);
}

// Two workers: transfers end in any order.
class Engine : public io::IoEngine {
 public:
  explicit Engine(int file) : file_(file), shared_(std::make_shared<Shared>()) {
    for (int i = 0; i < 2; ++i) {
      os::StartThread("disk", [shared = shared_, file] { Work(shared.get(), file); })->detach();
    }
  }
  const char* name() const override { return "simulated"; }
  size_t capacity() const override { return 8; }
  void Submit(std::span<const io::IoRequest> requests) override {
    os::MutexLock lock(&shared_->mu);
    shared_->todo.insert(shared_->todo.end(), requests.begin(), requests.end());
    shared_->work.NotifyAll();
  }
  size_t Poll(std::span<io::IoResult> results, std::chrono::nanoseconds timeout) override {
    const auto deadline = os::SteadyClock::now() + timeout;
    os::MutexLock lock(&shared_->mu);
    while (shared_->done.empty() && !shared_->woken) {
      const auto left = deadline - os::SteadyClock::now();
      if (left <= std::chrono::nanoseconds::zero()) break;
      shared_->finished.WaitFor(&shared_->mu, left);
    }
    shared_->woken = false;
    size_t count = 0;
    while (count < results.size() && !shared_->done.empty()) {
      results[count++] = shared_->done.front();
      shared_->done.pop_front();
    }
    return count;
  }
  void Wake() override {
    os::MutexLock lock(&shared_->mu);
    shared_->woken = true;
    shared_->finished.NotifyAll();
  }
  bool Stop(std::chrono::nanoseconds) override {
    os::MutexLock lock(&shared_->mu);
    shared_->stopping = true;
    shared_->work.NotifyAll();
    while (shared_->busy > 0) shared_->finished.Wait(&shared_->mu);
    return true;
  }

 private:
  struct Shared {
    os::Mutex mu{os::LockRank::kEngine};
    os::CondVar work, finished;
    std::deque<io::IoRequest> todo;
    std::deque<io::IoResult> done;
    bool woken = false, stopping = false;
    int busy = 0;
  };
  static void Work(Shared* shared, int file) {
    shared->mu.Lock();
    while (true) {
      while (shared->todo.empty() && !shared->stopping) shared->work.Wait(&shared->mu);
      if (shared->stopping) break;
      const size_t which = Disk::current()->random_->Below(static_cast<uint32_t>(shared->todo.size()));
      const io::IoRequest request = shared->todo[which];
      shared->todo.erase(shared->todo.begin() + static_cast<std::ptrdiff_t>(which));
      ++shared->busy;
      shared->mu.Unlock();
      const int32_t result = Disk::current()->Move(file, request);
      shared->mu.Lock();
      --shared->busy;
      shared->done.push_back({request.tag, result});
      shared->finished.NotifyAll();
    }
    shared->mu.Unlock();
  }

  const int file_;
  const std::shared_ptr<Shared> shared_;
};

std::unique_ptr<io::IoEngine> Disk::NewEngine(int file) { return std::make_unique<Engine>(file); }

}  // namespace spillway::simulation

// ---- In place of io/store/spill_file.cc, io/store/probe.cc and io/store/disk_order.cc.

namespace spillway::io {

using simulation::Disk;

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const std::string& directory, FileSystemCheck,
                                                             DirectIo, FileNaming) {
  return std::unique_ptr<SpillFile>(new SpillFile(directory, Disk::current()->Open(), 1, true));
}

SpillFile::SpillFile(std::string directory, int fd, dev_t device, bool direct)
    : directory_(std::move(directory)), device_(device), direct_(direct), fd_(fd) {}
SpillFile::~SpillFile() { Close(); }

absl::Status SpillFile::Grow(uint64_t bytes, const os::Atomic<bool>*) {
  if (!Disk::current()->Resize(fd_.load(), bytes)) return os::StatusFromErrno(ENOSPC, "growing a file");
  size_ = bytes;
  return absl::OkStatus();
}

absl::Status SpillFile::Truncate(uint64_t bytes) {
  Disk::current()->Resize(fd_.load(), bytes);
  size_ = bytes;
  return absl::OkStatus();
}

SpillFile::Growable SpillFile::SpaceToGrow(uint64_t size, uint64_t cap_bytes, uint64_t) const {
  const uint64_t space = Disk::current()->SpaceOf(fd_.load());
  return {.by_limits = cap_bytes == 0 ? space : cap_bytes - std::min(cap_bytes, size),
          .limit = cap_bytes == 0 ? Limit::kFileSystem : Limit::kCap,
          .limit_bytes = cap_bytes == 0 ? size + space : cap_bytes,
          .by_disk = space};
}

void SpillFile::Close() {
  const int fd = fd_.exchange(-1);
  if (fd >= 0 && Disk::current() != nullptr) Disk::current()->Close(fd);
}

// No other process spills.
DiskOrder::DiskOrder(const std::string&) {}
bool DiskOrder::FirstOfSeveral() const { return false; }
void DiskOrder::Close() {}

std::string DriveName(dev_t) { return "drive"; }

absl::StatusOr<OpenedDirectory> OpenDirectory(const std::string& path, const SpillStoreOptions&) {
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened.file, SpillFile::Create(path, FileSystemCheck::kAny, DirectIo::kIfPossible,
                                                           FileNaming::kUnnamedIfPossible));
  opened.engine = Disk::current()->NewEngine(opened.file->fd());
  return opened;
}

}  // namespace spillway::io
