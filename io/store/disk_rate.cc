#include "io/store/disk_rate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/os/bytes_text.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/store/probe.h"

namespace spillway::io {
namespace {

// The size and number of SpillStore's requests.
constexpr uint32_t kRequest = 512u << 10;
constexpr size_t kInFlight = 16;
constexpr uint64_t kGrowth = 256ull << 20;
constexpr uint64_t kMinSpace = kRequest * kInFlight;
// Reading gets less time than writing, since it has no cache to fill.
constexpr double kWritePart = 0.6;
constexpr auto kNoAnswer = std::chrono::seconds(30);
constexpr auto kBetweenReports = std::chrono::milliseconds(100);
constexpr double kNearlyDone = 0.99;  // of a direction, until its last transfer has ended

// Rounds down to whole requests.
uint64_t Whole(uint64_t bytes) { return bytes / kRequest * kRequest; }

// The data are bytes that no drive and no file system can compress, with their place in the file at the
// front.
void Mark(char* data, uint64_t offset) { std::memcpy(data, &offset, sizeof(offset)); }
bool HasMark(const char* data, uint64_t offset) { return std::memcmp(data, &offset, sizeof(offset)) == 0; }

void FillWithNoise(AlignedBuffer* buffer) {
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t at = 0; at + sizeof(state) <= buffer->size(); at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(buffer->data() + at, &state, sizeof(state));
  }
}

// Number of bytes that may be moved.
struct Bounds {
  uint64_t space = 0;  // free on the disk
  uint64_t limit = 0;  // allowed by caps and the system's limits
  uint64_t Least() const { return std::min(space, limit); }
};

// One direction: keeps requests in flight, from the start of the file until the time or the bytes end.
class Direction {
 public:
  Direction(OpenedDirectory* opened, AlignedBuffer* buffer, IoOp op, const DiskRateOptions& options)
      : opened_(opened), buffer_(buffer), op_(op), options_(options) {
    for (size_t place = 0; place < kInFlight; ++place) idle_.push_back(place);
  }

  absl::StatusOr<DirectionRate> Run(std::chrono::nanoseconds time, const Bounds& bounds) {
    time_ = time;
    bounds_ = bounds;
    start_ = os::SteadyClock::now();
    while (submitted_ < bounds_.Least() && Elapsed() < time_) {
      SPILLWAY_RETURN_IF_ERROR(SubmitOne());
      if (idle_.empty()) SPILLWAY_RETURN_IF_ERROR(Reap());
    }
    while (idle_.size() < kInFlight) SPILLWAY_RETURN_IF_ERROR(Reap());
    Report(/*end=*/true);
    const double seconds = Seconds(Elapsed());
    return DirectionRate{done_, seconds, LateRate(seconds)};
  }

  WriteEnd end() const {
    if (submitted_ < bounds_.Least()) return WriteEnd::kTime;
    return bounds_.limit < bounds_.space ? WriteEnd::kLimit : WriteEnd::kSpace;
  }

 private:
  struct Sample {
    double seconds;
    uint64_t bytes;
  };

  static double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }
  // Time spent on growing the file does not count: a job's file grows ahead of need.
  std::chrono::nanoseconds Elapsed() const { return os::SteadyClock::now() - start_ - growing_; }

  absl::Status SubmitOne() {
    if (op_ == IoOp::kWrite && submitted_ + kRequest > grown_) SPILLWAY_RETURN_IF_ERROR(Grow());
    if (submitted_ >= bounds_.Least()) return absl::OkStatus();
    const size_t place = idle_.back();
    idle_.pop_back();
    offsets_[place] = submitted_;
    char* const data = buffer_->data() + place * kRequest;
    Mark(data, op_ == IoOp::kWrite ? submitted_ : ~submitted_);
    const IoRequest request{
        .op = op_, .offset = submitted_, .length = kRequest, .buffer = data, .tag = place};
    opened_->engine->Submit({&request, 1});
    submitted_ += kRequest;
    return absl::OkStatus();
  }

  absl::Status Grow() {
    const auto before = os::SteadyClock::now();
    // The first growth is by one request, which shows whether growing means writing.
    const uint64_t to = std::min(grown_ + (grown_ == 0 ? kRequest : kGrowth), bounds_.Least());
    absl::Status grown = opened_->file->Grow(to);
    growing_ += os::SteadyClock::now() - before;
    if (grown.ok()) {
      const bool twice = grown_ == 0 && opened_->file->grows_by_writing() && options_.cap_bytes != 0;
      if (twice) bounds_.limit = std::min(bounds_.limit, Whole(options_.cap_bytes / 2));
      grown_ = to;
    } else if (absl::IsResourceExhausted(grown) && grown_ > 0) {
      bounds_.space = grown_;  // others took the rest meanwhile
    } else {
      return grown;
    }
    return absl::OkStatus();
  }

  absl::Status Reap() {
    std::array<IoResult, kInFlight> results;
    const size_t count = opened_->engine->Poll(results, kNoAnswer);
    if (count == 0) return absl::DeadlineExceededError("the disk does not answer");
    for (size_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(results[i].tag);
      const char* const what = op_ == IoOp::kWrite ? "writing" : "reading";
      if (results[i].result < 0) return os::StatusFromErrno(-results[i].result, what);
      if (results[i].result != static_cast<int32_t>(kRequest)) return os::StatusFromErrno(EIO, what);
      if (!HasMark(buffer_->data() + place * kRequest, offsets_[place]))
        return absl::DataLossError("what was read is not what was written");
      idle_.push_back(place);
      done_ += kRequest;
    }
    Report(/*end=*/false);
    return absl::OkStatus();
  }

  void Report(bool end) {
    const auto now = os::SteadyClock::now();
    if (!end && now < next_report_) return;
    next_report_ = now + std::min<std::chrono::nanoseconds>(kBetweenReports, time_ / 20);
    const double seconds = Seconds(Elapsed());
    samples_.push_back({seconds, done_});
    if (!options_.progress) return;
    const double by_time = seconds / std::max(1e-9, Seconds(time_));
    const double by_bytes = static_cast<double>(done_) / static_cast<double>(bounds_.Least());
    options_.progress({op_, end ? 1.0 : std::min(kNearlyDone, std::max(by_time, by_bytes)), done_, seconds});
  }

  // The rate since the first sample of the second half. It is the rate of the whole time when that sample is
  // less than a quarter of the time old.
  double LateRate(double seconds) const {
    const auto half = std::find_if(samples_.begin(), samples_.end(),
                                   [&](const Sample& sample) { return sample.seconds >= seconds / 2; });
    const double time = half == samples_.end() ? 0 : seconds - half->seconds;
    if (time < seconds / 4) return seconds > 0 ? static_cast<double>(done_) / seconds : 0;
    return static_cast<double>(done_ - half->bytes) / time;
  }

  OpenedDirectory* const opened_;
  AlignedBuffer* const buffer_;
  const IoOp op_;
  const DiskRateOptions& options_;
  std::chrono::nanoseconds time_{0}, growing_{0};
  Bounds bounds_;
  uint64_t submitted_ = 0, done_ = 0, grown_ = 0;
  os::SteadyClock::time_point start_, next_report_;
  std::array<uint64_t, kInFlight> offsets_{};
  std::vector<size_t> idle_;  // places of the buffer with no request in flight
  std::vector<Sample> samples_;
};

absl::StatusOr<DiskRates> WriteAndRead(OpenedDirectory* opened, AlignedBuffer* buffer, const Bounds& bounds,
                                       const DiskRateOptions& options) {
  DiskRates rates;
  const auto writing =
      std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(options.time.count()) * kWritePart));
  Direction write(opened, buffer, IoOp::kWrite, options);
  SPILLWAY_ASSIGN_OR_RETURN(rates.write, write.Run(writing, bounds));
  rates.end = write.end();
  Direction read(opened, buffer, IoOp::kRead, options);
  SPILLWAY_ASSIGN_OR_RETURN(rates.read,
                            read.Run(options.time - writing, {rates.write.bytes, rates.write.bytes}));
  return rates;
}

}  // namespace

absl::StatusOr<DiskRates> MeasureDisk(const std::string& path, const DiskRateOptions& options) {
  SpillStoreOptions store;
  store.requests_in_flight = kInFlight;
  store.allow_any_file_system = true;
  OpenedDirectory opened;
  SPILLWAY_ASSIGN_OR_RETURN(opened, OpenDirectory(path, store));
  const SpillFile::Growable growable = opened.file->SpaceToGrow(0, options.cap_bytes, options.reserve_bytes);
  const Bounds bounds{Whole(growable.by_disk), Whole(growable.by_limits)};
  if (bounds.Least() < kMinSpace) {
    return absl::ResourceExhaustedError("no space to measure in: " + os::BytesText(bounds.Least()) +
                                        " beyond the reserve, and " + os::BytesText(kMinSpace) +
                                        " are needed");
  }
  auto buffer = std::make_unique<AlignedBuffer>(kRequest * kInFlight);
  FillWithNoise(buffer.get());
  absl::StatusOr<DiskRates> rates = WriteAndRead(&opened, buffer.get(), bounds, options);
  // A transfer that is stuck in the kernel may use the buffer later, so the buffer must never be freed then.
  // Closing the file might wait for the disk.
  if (!opened.engine->Stop(std::chrono::seconds(1))) {
    (void)buffer.release();
    (void)opened.file.release();
  }
  return rates;
}

}  // namespace spillway::io
