#include "io/store/probe.h"

#include <sys/sysmacros.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/engine/file_system.h"
#include "io/engine/page_cache.h"
#include "io/engine/thread_engine.h"
#include "io/engine/uring_engine.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"
#include "io/os/wait.h"

namespace spillway::io {
namespace {

constexpr uint32_t kProbeBytes = 64u << 10;

// If a Poll ends later than this after its time, the process was stopped meanwhile. Such time is not the
// disk's.
constexpr auto kStopped = std::chrono::seconds(1);
constexpr auto kStopTime = std::chrono::milliseconds(100);  // beyond the deadline
constexpr auto kPollTime = std::chrono::milliseconds(100);
constexpr auto kInterrupted = std::chrono::seconds(1);  // after that another engine may do better

// The result of the one request in flight; nothing when it has not come by the deadline.
std::optional<IoResult> WaitForResult(IoEngine* engine, os::SteadyClock::time_point* deadline) {
  IoResult result;
  while (true) {
    const auto before = os::SteadyClock::now();
    if (engine->Poll({&result, 1}, kPollTime) > 0) return result;
    const auto now = os::SteadyClock::now();
    if (now - before > kPollTime + kStopped) *deadline += now - before;
    if (now > *deadline) return std::nullopt;
  }
}

// Makes one request and waits for its whole result.
absl::Status TransferWhole(IoEngine* engine, const IoRequest& request, std::chrono::nanoseconds timeout) {
  const std::string what = std::string(engine->name()) + (request.op == IoOp::kWrite ? ": write" : ": read");
  auto deadline = os::SteadyClock::now() + timeout;
  const auto retries_end = os::SteadyClock::now() + std::min<std::chrono::nanoseconds>(timeout, kInterrupted);
  while (true) {
    engine->Submit({&request, 1});
    const std::optional<IoResult> result = WaitForResult(engine, &deadline);
    if (!result) return absl::DeadlineExceededError(what + " did not end");
    if (result->tag != request.tag) return absl::InternalError(what + " ended as another one");
    if (result->result < 0 && IsInterruption(-result->result) && os::SteadyClock::now() < retries_end) {
      os::SleepFor(std::chrono::milliseconds(1));
      continue;
    }
    if (result->result < 0) return os::StatusFromErrno(-result->result, what);
    if (result->result != static_cast<int32_t>(request.length)) {
      return absl::InternalError(what + " was short");
    }
    return absl::OkStatus();
  }
}

absl::Status WriteAndRead(IoEngine* engine, char* written, char* read, std::chrono::nanoseconds timeout) {
  IoRequest request{.op = IoOp::kWrite, .length = kProbeBytes, .buffer = written, .tag = 1};
  SPILLWAY_RETURN_IF_ERROR(TransferWhole(engine, request, timeout));
  request = IoRequest{.op = IoOp::kRead, .length = kProbeBytes, .buffer = read, .tag = 2};
  return TransferWhole(engine, request, timeout);
}

ThreadEngineOptions ThreadOptions(const SpillStoreOptions& options, PageCache page_cache) {
  return ThreadEngineOptions{
      .threads = std::max(1, std::min(options.engine_threads, options.requests_in_flight)),
      .capacity = static_cast<size_t>(options.requests_in_flight),
      .page_cache = page_cache,
      .thread_name = "spill-io"};
}

// Fails with Unimplemented when direct transfers cannot be relied on, by the facts that are known before any
// transfer.
absl::Status CheckDirect(const SpillFile& file) {
  if (!file.direct()) return absl::UnimplementedError("O_DIRECT is refused");
  const FileSystemKind kind = KindOf(file.fd());
  if (!kind.direct_is_on_disk)
    return absl::UnimplementedError(kind.name + " may hold in memory what it reports as written");
  const std::optional<uint32_t> alignment = DirectAlignment(file.fd());
  if (alignment && *alignment == 0)
    return absl::UnimplementedError("the kernel says that the file has no direct transfers");
  if (alignment && *alignment > kPageBytes)
    return absl::UnimplementedError("direct transfers are multiples of " + std::to_string(*alignment) +
                                    " bytes");
  return absl::OkStatus();
}

// Fails with FailedPrecondition when the bytes that the probe moved lie in the page cache (ext4 with
// data=journal, for one).
absl::Status CheckNotCached(const SpillFile& file) {
  const std::optional<uint64_t> cached = CachedPages(file.fd(), kProbeBytes);
  if (!file.direct() || !cached || *cached == 0) return absl::OkStatus();
  return absl::FailedPreconditionError("direct transfers go through the page cache");
}

absl::StatusOr<std::unique_ptr<IoEngine>> MakeProbed(SpillFile* file, const SpillStoreOptions& options,
                                                     EngineKind kind) {
  std::unique_ptr<IoEngine> engine;
  if (kind == EngineKind::kUring) {
    SPILLWAY_ASSIGN_OR_RETURN(engine,
                              MakeUringEngine({file->fd()}, static_cast<size_t>(options.requests_in_flight),
                                              WakeUps::kNotTheMaker));
  } else {
    const PageCache page_cache = file->direct() ? PageCache::kBypassed : PageCache::kWrittenThrough;
    SPILLWAY_ASSIGN_OR_RETURN(engine, MakeThreadEngine({file->fd()}, ThreadOptions(options, page_cache)));
  }
  if (options.wrap_probed_engine) engine = options.wrap_probed_engine(std::move(engine));
  SPILLWAY_RETURN_IF_ERROR(ProbeEngine(engine.get(), options.probe_timeout));
  SPILLWAY_RETURN_IF_ERROR(CheckNotCached(*file));
  SPILLWAY_RETURN_IF_ERROR(file->Truncate(0));
  return engine;
}

absl::StatusOr<std::unique_ptr<SpillFile>> MakeFile(const std::string& path, const SpillStoreOptions& options,
                                                    DirectIo direct_io) {
  return SpillFile::Create(path,
                           options.allow_any_file_system ? FileSystemCheck::kAny : FileSystemCheck::kNormal,
                           direct_io, FileNaming::kUnnamedIfPossible);
}

// No other engine is tried after a silence: a stuck request may be carried out at any time, and would damage
// what another engine has written. The file stays open, since closing it may wait for the disk.
absl::Status Silent(const std::string& path, const absl::Status& why, std::unique_ptr<SpillFile> file) {
  (void)file.release();
  return absl::DeadlineExceededError("spill directory " + path +
                                     ": the disk does not answer: " + std::string(why.message()));
}

absl::StatusOr<OpenedDirectory> OpenBuffered(const std::string& path, const SpillStoreOptions& options,
                                             const std::string& why) {
  OpenedDirectory opened;
  opened.cached_because = why;
  SPILLWAY_ASSIGN_OR_RETURN(opened.file, MakeFile(path, options, DirectIo::kNever));
  absl::StatusOr<std::unique_ptr<IoEngine>> engine =
      MakeProbed(opened.file.get(), options, EngineKind::kThreads);
  if (absl::IsDeadlineExceeded(engine.status())) return Silent(path, engine.status(), std::move(opened.file));
  if (!engine.ok()) {
    return absl::Status(engine.status().code(),
                        "spill directory " + path + ": writing and reading back failed: " +
                            std::string(engine.status().message()) + "; choose a directory on a local disk");
  }
  os::Log(os::LogLevel::kWarn,
          "path=" + path + " no direct transfers here: " + why +
              "; spilling goes through the page cache and flushes each write, which is " +
              "slower and takes memory");
  if (options.checksum == ChecksumMode::kOff)
    os::Log(os::LogLevel::kWarn, "path=" + path +
                                     " checksums stay on although SPILLWAY_CHECKSUM is off: the " +
                                     "page cache can give back what the disk has lost");
  opened.engine = *std::move(engine);
  return opened;
}

}  // namespace

absl::Status ProbeEngine(IoEngine* engine, std::chrono::nanoseconds timeout) {
  auto written = std::make_unique<AlignedBuffer>(kProbeBytes);
  auto read = std::make_unique<AlignedBuffer>(kProbeBytes);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < written->size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    written->data()[i] = static_cast<char>(state >> 56);
  }
  std::memset(read->data(), 0, read->size());
  const absl::Status moved = WriteAndRead(engine, written->data(), read->data(), timeout);
  if (absl::IsDeadlineExceeded(moved) && !engine->Stop(kStopTime)) {
    // The kernel still has the request, and moves its bytes when the disk answers, so nobody else may get
    // them.
    (void)written.release();
    (void)read.release();
  }
  SPILLWAY_RETURN_IF_ERROR(moved);
  if (std::memcmp(written->data(), read->data(), kProbeBytes) != 0) {
    return absl::DataLossError(std::string(engine->name()) + ": what was read is not what was written");
  }
  return absl::OkStatus();
}

std::string DriveName(dev_t device) {
  const std::string link =
      "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  char target[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), target, sizeof(target));
  if (length <= 0) return "";
  const std::string path(target, static_cast<size_t>(length));
  return path.substr(path.rfind('/') + 1);
}

absl::StatusOr<OpenedDirectory> OpenDirectory(const std::string& path, const SpillStoreOptions& options) {
  std::optional<os::Wait> wait;
  if (options.waits != nullptr)
    wait.emplace(options.waits, os::WaitKind::kDrive, "the first answer of " + path);
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened.file, MakeFile(path, options, DirectIo::kIfPossible));
  absl::Status why = CheckDirect(*opened.file);
  const bool direct = why.ok();
  for (const EngineKind kind : {EngineKind::kUring, EngineKind::kThreads}) {
    if (!direct) break;
    if (options.engine != EngineKind::kAuto && options.engine != kind) continue;
    absl::StatusOr<std::unique_ptr<IoEngine>> engine = MakeProbed(opened.file.get(), options, kind);
    if (engine.ok()) {
      opened.engine = *std::move(engine);
      return opened;
    }
    why = engine.status();
    if (absl::IsDeadlineExceeded(why)) return Silent(path, why, std::move(opened.file));
    os::Log(os::LogLevel::kInfo, "path=" + path + " engine not used: " + std::string(why.message()));
  }
  // No engine works with O_DIRECT, but the page cache may still work.
  if (options.engine == EngineKind::kUring) {
    return absl::Status(why.code(),
                        "spill directory " + path +
                            ": io_uring was asked for and does not work: " + std::string(why.message()));
  }
  return OpenBuffered(path, options, std::string(why.message()));
}

absl::StatusOr<DirectoryReport> ProbeDirectory(const std::string& path) {
  SpillStoreOptions options;
  options.allow_any_file_system = true;
  DirectoryReport report;
  {
    SpillStoreOptions uring = options;
    uring.engine = EngineKind::kUring;
    absl::StatusOr<OpenedDirectory> opened = OpenDirectory(path, uring);
    if (absl::IsDeadlineExceeded(opened.status())) return opened.status();
    report.io_uring = opened.ok();
    if (!opened.ok()) report.io_uring_error = std::string(opened.status().message());
  }
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened, OpenDirectory(path, options));
  const FileSystemKind kind = KindOf(opened.file->fd());
  report.file_system = kind.name;
  report.known = kind.known;
  report.direct_io = opened.file->direct();
  report.cached_because = opened.cached_because;
  return report;
}

}  // namespace spillway::io
