#include "io/transfer_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::io {
namespace {

constexpr int kTagPlaceBits = 16;
constexpr int kMostFailures = 2;                 // the first try and one more
constexpr int64_t kRetryPauseNanos = 250'000;    // doubled with each interruption, up to 32 ms
constexpr int64_t kLongRequest = 1'000'000'000;  // ns: a request that takes longer is entered as a wait
constexpr auto kIdleWait = std::chrono::seconds(3600);
constexpr auto kLookAtEnd = std::chrono::milliseconds(20);
// A stop of the process is known by a Poll that ends late, to the length of one.
constexpr auto kLongestPoll = std::chrono::milliseconds(250);  // while requests are in flight
constexpr uint64_t kSpeedWindowBytes = 64 << 20;

}  // namespace

TransferQueue::TransferQueue(std::unique_ptr<IoEngine> engine, const TransferQueueOptions& options)
    : options_(options), engine_(std::move(engine)), flights_(engine_->capacity()) {
  SPILLWAY_CHECK(flights_.size() < (1u << kTagPlaceBits));
}

absl::StatusOr<std::shared_ptr<TransferQueue>> TransferQueue::Start(std::unique_ptr<IoEngine> engine,
                                                                    const TransferQueueOptions& options) {
  std::shared_ptr<TransferQueue> queue(new TransferQueue(std::move(engine), options));
  SPILLWAY_ASSIGN_OR_RETURN(queue->thread_, os::StartThread("spill-dir", [queue] { queue->Run(); }));
  return queue;
}

bool TransferQueue::Push(std::shared_ptr<Transfer> transfer) {
  os::MutexLock lock(&mu_);
  if (stopping_) return false;
  queued_bytes_ += transfer->bytes;
  order_.Push(std::move(transfer));
  if (std::exchange(polling_, false)) engine_->Wake();
  return true;
}

void TransferQueue::Promote(uint32_t slot) {
  os::MutexLock lock(&mu_);
  order_.Promote(slot);
}

void TransferQueue::CancelPrefetch(uint32_t slot) {
  os::MutexLock lock(&mu_);
  if (stopping_) return;  // the stop cancels all
  std::deque<std::shared_ptr<Transfer>> taken = order_.TakeUnstartedPrefetch(slot);
  if (taken.empty()) return;
  cancelled_.insert(cancelled_.end(), taken.begin(), taken.end());
  if (std::exchange(polling_, false)) engine_->Wake();
}

void TransferQueue::Run() {
  std::array<IoResult, 64> results;
  looked_at_ = options_.clock->NowNanos();
  while (true) {
    const int64_t now = options_.clock->NowNanos();
    bool stopping = false;
    bool stop_now = false;
    std::deque<std::shared_ptr<Transfer>> cancelled;
    {
      os::MutexLock lock(&mu_);
      cancelled.swap(cancelled_);
      stopping = stopping_;
      stop_now = stopping_ && (busy_places_ == given_up_places_ || now >= stop_deadline_);
      if (!stopping) FillBatch();
      polling_ = true;
    }
    EndTransfers(cancelled, EndReason::kCancelled);
    if (stopping) EndWaiting(EndReason::kCancelled);
    if (stop_now) break;  // what waits for its next try does not go to the kernel any more
    FillFromRetries();
    if (!batch_.empty()) engine_->Submit(batch_);
    batch_.clear();
    const std::chrono::nanoseconds asked =
        stopping ? std::min<std::chrono::nanoseconds>(PollTimeout(), kLookAtEnd) : PollTimeout();
    const size_t count = engine_->Poll(results, asked);
    AllowForStop(asked);
    for (size_t i = 0; i < count; ++i) Judge(results[i]);
    GiveUpLateFlights();
    NoteWaits(options_.clock->NowNanos());
  }
  wait_ = nullptr;
  const bool answered = EndAll();
  os::MutexLock lock(&mu_);
  ended_ = true;
  answered_ = answered;
  ended_cv_.NotifyAll();
}

// Gives free places to waiting transfers.
void TransferQueue::FillBatch() {
  for (size_t place = 0; place < flights_.size() && busy_places_ < flights_.size(); ++place) {
    if (flights_[place].transfer != nullptr || flights_[place].given_up) continue;
    std::shared_ptr<Transfer> transfer = order_.Next(BusyDirections());
    if (transfer == nullptr) return;
    StartFlight(place, std::move(transfer));
  }
}

// Disks read and write at the same time. While transfers of both directions wait, neither direction takes the
// last quarter of the places.
std::array<bool, 2> TransferQueue::BusyDirections() const {
  std::array<size_t, 2> in_flight = {0, 0};
  for (const Flight& flight : flights_) {
    if (flight.transfer != nullptr) ++in_flight[static_cast<size_t>(flight.transfer->op)];
  }
  const size_t share = flights_.size() - flights_.size() / 4;
  const bool divides = share < flights_.size();
  return {divides && in_flight[0] >= share, divides && in_flight[1] >= share};
}

void TransferQueue::StartFlight(size_t place, std::shared_ptr<Transfer> transfer) {
  const int64_t now = options_.clock->NowNanos();
  if (busy_places_ == 0) busy_since_ = now;
  ++busy_places_;
  Flight& flight = flights_[place];
  flight = Flight{};
  flight.start = transfer->submitted;
  flight.length = std::min(options_.request_bytes, transfer->bytes - transfer->submitted);
  flight.started = now;
  transfer->submitted += flight.length;
  ++transfer->in_flight;
  flight.transfer = std::move(transfer);
  AddToBatch(&flight);
}

void TransferQueue::AddToBatch(Flight* flight) {
  const auto place = static_cast<uint64_t>(flight - flights_.data());
  flight->tag = (++next_sequence_ << kTagPlaceBits | place) & INT64_MAX;
  flight->deadline = options_.clock->NowNanos() + options_.request_timeout.count();
  const uint32_t from = flight->start + flight->moved;
  batch_.push_back(IoRequest{.file = 0,
                             .op = flight->transfer->op,
                             .offset = flight->transfer->offset + from,
                             .length = flight->length - flight->moved,
                             .buffer = flight->transfer->data + from,
                             .tag = flight->tag});
}

void TransferQueue::FillFromRetries() {
  const int64_t now = options_.clock->NowNanos();
  for (Flight& flight : flights_) {
    if (!flight.waiting_to_retry || flight.retry_at > now) continue;
    flight.waiting_to_retry = false;
    AddToBatch(&flight);
  }
}

std::chrono::nanoseconds TransferQueue::PollTimeout() const {
  if (busy_places_ == given_up_places_) return kIdleWait;
  const int64_t now = options_.clock->NowNanos();
  int64_t soonest = now + std::chrono::nanoseconds(kLongestPoll).count();
  for (const Flight& flight : flights_) {
    if (flight.transfer == nullptr) continue;
    soonest = std::min(soonest, flight.waiting_to_retry ? flight.retry_at : flight.deadline);
    if (wait_ == nullptr && options_.waits != nullptr)
      soonest = std::min(soonest, flight.started + kLongRequest);
  }
  return std::chrono::nanoseconds(std::max<int64_t>(soonest - now, 0));
}

// Compares one result with its request and decides what follows.
void TransferQueue::Judge(const IoResult& result) {
  const size_t place = result.tag & ((1u << kTagPlaceBits) - 1);
  if (result.tag == 0 || place >= flights_.size() || flights_[place].tag != result.tag) {
    os::Log(os::LogLevel::kError, "engine=" + std::string(engine_->name()) + " path=" + options_.path +
                                      " a result that belongs to no request was ignored");
    return;
  }
  Flight& flight = flights_[place];
  flight.tag = 0;  // a second result for this request is not counted
  if (flight.given_up) {
    flight.given_up = false;
    --given_up_places_;
    --busy_places_;
    return;
  }
  const uint32_t asked = flight.length - flight.moved;
  if (result.result < 0) {
    RetryOrFail(&flight, -result.result);
  } else if (static_cast<uint32_t>(result.result) > asked) {
    Fail(&flight, absl::InternalError(Describe(*flight.transfer) + ": the engine moved more than was asked"));
  } else if (static_cast<uint32_t>(result.result) == asked) {
    flight.moved = flight.length;
    EndFlight(&flight);
  } else {
    // Direct I/O continues at a page boundary, so that part of a page is moved again. No progress at all
    // counts as an error: it is the end of the file, or a disk that takes nothing.
    const auto progress = static_cast<uint32_t>(result.result) / kPageBytes * kPageBytes;
    if (progress == 0) {
      RetryOrFail(&flight, EIO);
    } else {
      flight.moved += progress;
      ++counters_.retries;
      flight.waiting_to_retry = true;
      flight.retry_at = 0;
    }
  }
}

void TransferQueue::RetryOrFail(Flight* flight, int error) {
  if (!flight->transfer->status.ok()) {  // another request of the transfer has failed
    EndFlight(flight);
    return;
  }
  const bool interrupted = IsInterruption(error);
  const int64_t now = options_.clock->NowNanos();
  const int tries = ++(interrupted ? flight->interrupted : flight->failed);
  // A full disk is not tried again: it stays full for longer than a retry takes.
  const bool hopeless = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const bool too_long = now - flight->started >= options_.request_timeout.count();
  if (hopeless || (interrupted ? too_long : tries >= kMostFailures)) {
    const absl::Status status = os::StatusFromErrno(error, Describe(*flight->transfer));
    // Whatever the number: a kernel without memory is not a full disk.
    Fail(flight, interrupted ? absl::UnavailableError(status.message()) : status);
    return;
  }
  ++counters_.retries;
  flight->waiting_to_retry = true;
  // The first interruption is retried at once. A device that answers EAGAIN again and again gets longer
  // pauses.
  flight->retry_at = tries == 1 ? 0 : now + (kRetryPauseNanos << std::min(tries, 7));
}

void TransferQueue::Fail(Flight* flight, const absl::Status& status) {
  if (flight->transfer->status.ok()) flight->transfer->status = status;
  EndFlight(flight);
}

// Ends a request: frees its place, and completes its transfer when it was the last.
void TransferQueue::EndFlight(Flight* flight) {
  const std::shared_ptr<Transfer> transfer = std::move(flight->transfer);
  flight->transfer = nullptr;
  if (!flight->given_up) --busy_places_;
  busy_bytes_ += flight->moved;
  MeasureSpeed(options_.clock->NowNanos());
  --transfer->in_flight;
  CompleteIfEnded(transfer);
}

void TransferQueue::CompleteIfEnded(const std::shared_ptr<Transfer>& transfer) {
  const bool all_cut = transfer->submitted >= transfer->bytes || !transfer->status.ok();
  if (transfer->completed || transfer->in_flight > 0 || !all_cut) return;
  transfer->completed = true;
  queued_bytes_ -= transfer->bytes;
  if (transfer->status.ok()) {
    (transfer->op == IoOp::kWrite ? counters_.bytes_written : counters_.bytes_read) += transfer->bytes;
  } else if (!absl::IsCancelled(transfer->status) && !ending_) {
    ++counters_.errors;
  }
  // `done` is moved out, so that what it captured is freed although the queue may still list the transfer.
  const std::function<void(absl::Status)> done = std::move(transfer->done);
  transfer->done = nullptr;
  done(transfer->status);
}

// Enters the oldest request as a wait once it takes long, until it ends.
void TransferQueue::NoteWaits(int64_t now) {
  const Flight* oldest = nullptr;
  for (const Flight& flight : flights_) {
    if (flight.transfer == nullptr || now - flight.started < kLongRequest) continue;
    if (oldest == nullptr || flight.started < oldest->started) oldest = &flight;
  }
  if (oldest == nullptr) {
    wait_ = nullptr;
  } else if (wait_ == nullptr && options_.waits != nullptr) {
    wait_ = std::make_unique<os::Wait>(
        options_.waits, os::WaitKind::kDrive,
        std::string(oldest->transfer->op == IoOp::kWrite ? "a write to " : "a read from ") + place());
  }
}

void TransferQueue::MeasureSpeed(int64_t now) {
  if (busy_bytes_ >= kSpeedWindowBytes && now > busy_since_) {
    const double speed = static_cast<double>(busy_bytes_) * 1e9 / static_cast<double>(now - busy_since_);
    const double before = bytes_per_second_.load();
    bytes_per_second_ = before == 0 ? speed : before + (speed - before) / 4;
    busy_since_ = now;
    busy_bytes_ = 0;
  } else if (busy_places_ == 0) {
    // Idle time does not count: the measurement goes on at the next transfer.
    busy_bytes_ = 0;
  }
}

std::string TransferQueue::Describe(const Transfer& transfer) const {
  return "spill file in " + options_.path + ": " + (transfer.op == IoOp::kWrite ? "write" : "read") + " of " +
         std::to_string(transfer.bytes) + " bytes at offset " + std::to_string(transfer.offset);
}

}  // namespace spillway::io
