#include "io/probe.h"

#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "io/aligned_buffer.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/thread_engine.h"
#include "io/uring_engine.h"

namespace spillway::io {
namespace {

constexpr uint32_t kProbeBytes = 64u << 10;
constexpr auto kProbeTimeout = std::chrono::seconds(10);
constexpr uint64_t kDefaultBandwidthBytes = 64ull << 20;

// One request and its whole result.
absl::Status TransferWhole(IoEngine* engine, const IoRequest& request) {
  const std::string what = std::string(engine->name()) + (request.op == IoOp::kWrite ? ": write" : ": read");
  const auto deadline = os::SteadyClock::now() + kProbeTimeout;
  engine->Submit({&request, 1});
  IoResult result;
  while (engine->Poll({&result, 1}, std::chrono::milliseconds(100)) == 0) {
    if (os::SteadyClock::now() > deadline) return absl::DeadlineExceededError(what + " did not end");
  }
  if (result.tag != request.tag) return absl::InternalError(what + " ended as another one");
  if (result.result < 0) return os::StatusFromErrno(-result.result, what);
  if (result.result != static_cast<int32_t>(request.length)) return absl::InternalError(what + " was short");
  return absl::OkStatus();
}

ThreadEngineOptions ThreadOptions(const SpillStoreOptions& options, PageCache page_cache) {
  return ThreadEngineOptions{
      .threads = std::max(1, std::min(options.engine_threads, options.requests_in_flight)),
      .capacity = static_cast<size_t>(options.requests_in_flight),
      .page_cache = page_cache,
      .thread_name = "spill-io"};
}

absl::StatusOr<std::unique_ptr<IoEngine>> MakeProbed(SpillFile* file, const SpillStoreOptions& options,
                                                     EngineKind kind) {
  std::unique_ptr<IoEngine> engine;
  if (kind == EngineKind::kUring) {
    SPILLWAY_ASSIGN_OR_RETURN(engine,
                              MakeUringEngine({file->fd()}, static_cast<size_t>(options.requests_in_flight)));
  } else {
    const PageCache page_cache = file->direct() ? PageCache::kBypassed : PageCache::kDropped;
    SPILLWAY_ASSIGN_OR_RETURN(engine, MakeThreadEngine({file->fd()}, ThreadOptions(options, page_cache)));
  }
  SPILLWAY_RETURN_IF_ERROR(ProbeEngine(engine.get()));
  SPILLWAY_RETURN_IF_ERROR(file->Truncate(0));
  return engine;
}

absl::StatusOr<std::unique_ptr<SpillFile>> MakeFile(const std::string& path, const SpillStoreOptions& options,
                                                    DirectIo direct_io) {
  return SpillFile::Create(path,
                           options.allow_any_file_system ? FileSystemCheck::kAny : FileSystemCheck::kNormal,
                           direct_io, FileNaming::kUnnamedIfPossible);
}

}  // namespace

absl::Status ProbeEngine(IoEngine* engine) {
  AlignedBuffer written(kProbeBytes);
  AlignedBuffer read(kProbeBytes);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < written.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    written.data()[i] = static_cast<char>(state >> 56);
  }
  std::memset(read.data(), 0, read.size());
  IoRequest request{.op = IoOp::kWrite, .length = kProbeBytes, .buffer = written.data(), .tag = 1};
  SPILLWAY_RETURN_IF_ERROR(TransferWhole(engine, request));
  request = IoRequest{.op = IoOp::kRead, .length = kProbeBytes, .buffer = read.data(), .tag = 2};
  SPILLWAY_RETURN_IF_ERROR(TransferWhole(engine, request));
  if (std::memcmp(written.data(), read.data(), kProbeBytes) != 0) {
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
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened.file, MakeFile(path, options, DirectIo::kIfPossible));
  absl::Status why;
  if (opened.file->direct()) {
    for (const EngineKind kind : {EngineKind::kUring, EngineKind::kThreads}) {
      if (options.engine != EngineKind::kAuto && options.engine != kind) continue;
      absl::StatusOr<std::unique_ptr<IoEngine>> engine = MakeProbed(opened.file.get(), options, kind);
      if (engine.ok()) {
        opened.engine = *std::move(engine);
        return opened;
      }
      why = engine.status();
      os::Log(os::LogLevel::kInfo, "path=" + path + " engine not used: " + std::string(why.message()));
    }
  }
  // No engine works with O_DIRECT: the page cache may still work.
  if (options.engine == EngineKind::kUring) {
    return absl::Status(why.ok() ? absl::StatusCode::kUnimplemented : why.code(),
                        "spill directory " + path + ": io_uring was asked for and does not work: " +
                            std::string(why.ok() ? "O_DIRECT is refused" : why.message()));
  }
  SPILLWAY_ASSIGN_OR_RETURN(opened.file, MakeFile(path, options, DirectIo::kNever));
  absl::StatusOr<std::unique_ptr<IoEngine>> engine =
      MakeProbed(opened.file.get(), options, EngineKind::kThreads);
  if (!engine.ok()) {
    return absl::Status(engine.status().code(),
                        "spill directory " + path + ": writing and reading back failed: " +
                            std::string(engine.status().message()) + "; choose a directory on a local disk");
  }
  os::Log(os::LogLevel::kWarn, "path=" + path +
                                   " O_DIRECT does not work here; spilling goes through the page cache, " +
                                   "which is slower and takes memory");
  opened.engine = *std::move(engine);
  return opened;
}

namespace {

struct Bandwidth {
  double write_bytes_per_second = 0;
  double read_bytes_per_second = 0;
};

double TimeTransfers(IoEngine* engine, IoOp op, uint64_t bytes, AlignedBuffer* buffer, absl::Status* status) {
  const os::Clock* clock = os::Clock::System();
  const int64_t start = clock->NowNanos();
  constexpr uint32_t kRequest = 512u << 10;
  uint64_t submitted = 0;
  uint64_t ended = 0;
  std::array<IoResult, 16> results;
  while (ended < bytes) {
    while (submitted < bytes && submitted - ended < buffer->size()) {
      const IoRequest request{.op = op,
                              .offset = submitted,
                              .length = kRequest,
                              .buffer = buffer->data() + submitted % buffer->size(),
                              .tag = submitted};
      engine->Submit({&request, 1});
      submitted += kRequest;
    }
    const size_t count = engine->Poll(results, kProbeTimeout);
    for (size_t i = 0; i < count; ++i) {
      if (results[i].result != static_cast<int32_t>(kRequest)) {
        *status = os::StatusFromErrno(results[i].result < 0 ? -results[i].result : EIO, "bandwidth probe");
      }
      ended += kRequest;
    }
    if (count == 0) *status = absl::DeadlineExceededError("bandwidth probe: the disk does not answer");
    if (!status->ok()) return 0;
  }
  return static_cast<double>(bytes) * 1e9 / static_cast<double>(clock->NowNanos() - start + 1);
}

absl::StatusOr<Bandwidth> MeasureBandwidth(OpenedDirectory* opened, uint64_t bytes) {
  const uint64_t whole = std::max<uint64_t>(bytes / kSlotBytes, 1) * kSlotBytes;
  SPILLWAY_RETURN_IF_ERROR(opened->file->Grow(whole));
  AlignedBuffer buffer(8u << 20);
  std::memset(buffer.data(), 0x5a, buffer.size());
  Bandwidth bandwidth;
  absl::Status status;
  bandwidth.write_bytes_per_second =
      TimeTransfers(opened->engine.get(), IoOp::kWrite, whole, &buffer, &status);
  if (status.ok()) {
    bandwidth.read_bytes_per_second =
        TimeTransfers(opened->engine.get(), IoOp::kRead, whole, &buffer, &status);
  }
  // The engine is stopped before the buffer is freed: a late transfer must not touch memory in other use.
  opened->engine->Stop(kProbeTimeout);
  SPILLWAY_RETURN_IF_ERROR(status);
  return bandwidth;
}

}  // namespace

absl::StatusOr<DirectoryReport> ProbeDirectory(const std::string& path, uint64_t bytes) {
  SpillStoreOptions options;
  options.allow_any_file_system = true;
  DirectoryReport report;
  {
    SpillStoreOptions uring = options;
    uring.engine = EngineKind::kUring;
    absl::StatusOr<OpenedDirectory> opened = OpenDirectory(path, uring);
    report.io_uring = opened.ok();
    if (!opened.ok()) report.io_uring_error = std::string(opened.status().message());
  }
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened, OpenDirectory(path, options));
  report.file_system = FileSystemName(opened.file->fd());
  report.direct_io = opened.file->direct();
  struct statvfs info;
  if (fstatvfs(opened.file->fd(), &info) != 0) return os::StatusFromErrno(errno, "statvfs of " + path);
  report.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  report.total_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  Bandwidth bandwidth;
  SPILLWAY_ASSIGN_OR_RETURN(bandwidth,
                            MeasureBandwidth(&opened, bytes == 0 ? kDefaultBandwidthBytes : bytes));
  report.write_bytes_per_second = bandwidth.write_bytes_per_second;
  report.read_bytes_per_second = bandwidth.read_bytes_per_second;
  return report;
}

}  // namespace spillway::io
