#include "io/store/transfer_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"
#include "io/store/test_points.h"

namespace spillway::io {
namespace {

constexpr int kTagPlaceBits = 16;
constexpr int64_t kInterruptionPause = 250'000;    // ns; doubled with each interruption, up to 32 ms
constexpr int64_t kFirstFailurePause = 1'000'000;  // ns; doubled with each failure
constexpr int64_t kLongestFailurePause = 1'000'000'000;
constexpr int64_t kLongRequest = 1'000'000'000;  // ns: a request that takes longer is entered as a wait
constexpr int64_t kQuietTime = 10'000'000'000;   // ns without an error: the next one gets a line in the log
constexpr auto kIdleWait = std::chrono::seconds(3600);
constexpr auto kLongestBudgetWait = std::chrono::seconds(1);
constexpr auto kEndPollInterval = std::chrono::milliseconds(20);
// A stop of the process shows by a Poll that ends late, and is measured to the length of one Poll.
constexpr auto kLongestPoll = std::chrono::milliseconds(250);  // while requests are in flight

// Errors of a read that time does not mend. The kernel returns ENODATA for a medium error and EILSEQ for a
// failed protection check (blk_errors in block/blk-core.c). EIO, ETIMEDOUT, ENOLINK and others come from a
// path, a controller or a target that may work again. The remaining errors are of requests that can never be
// served.
bool IsLastingReadError(int error) {
  switch (error) {
    case ENODATA:
    case EILSEQ:
    case EBADF:
    case EFAULT:
    case EINVAL:
    case EOPNOTSUPP: return true;
    default: return false;
  }
}

// A full disk stays full for longer than a retry takes.
bool IsFullDisk(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

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
  queued_bytes_[static_cast<size_t>(transfer->op)] += transfer->bytes;
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
  if (stopping_) return;  // the stop cancels all of them
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
    write_at_ = 0;
    std::deque<std::shared_ptr<Transfer>> cancelled;
    {
      os::MutexLock lock(&mu_);
      cancelled.swap(cancelled_);
      stopping = stopping_;
      stop_now = stopping_ && (busy_places_ == given_up_places_ || now >= stop_deadline_);
      if (!stopping) FillBatch();
      // A Push after this wakes the engine. Since both are under the lock, no transfer can come between
      // FillBatch and the Poll and wait until the Poll times out.
      polling_ = true;
    }
    EndTransfers(cancelled, EndReason::kCancelled);
    if (stopping) EndWaiting();
    if (stop_now) break;  // a request that waits for its next attempt no longer goes to the kernel
    FillFromRetries();
    if (!batch_.empty()) engine_->Submit(batch_);
    batch_.clear();
    const std::chrono::nanoseconds asked =
        stopping ? std::min<std::chrono::nanoseconds>(PollTimeout(), kEndPollInterval) : PollTimeout();
    const size_t count = engine_->Poll(results, asked);
    AllowForStop(asked);
    for (size_t i = 0; i < count; ++i) Judge(results[i]);
    RecordLateFlights();
    RecordWaits(options_.clock->NowNanos());
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
    if (flights_[place].transfer != nullptr || flights_[place].given_up != nullptr) continue;
    std::array<TransferOrder::Load, 2> load = LoadOfDirections();
    if (WritesWaitForBudget()) load[static_cast<size_t>(IoOp::kWrite)] = TransferOrder::Load::kFull;
    std::shared_ptr<Transfer> transfer = order_.Next(load);
    if (transfer == nullptr) return;
    StartFlight(place, std::move(transfer));
  }
}

bool TransferQueue::WritesWaitForBudget() {
  if (options_.write_budget == nullptr) return false;
  const std::chrono::nanoseconds wait = options_.write_budget->UntilNextWrite();
  if (wait.count() == 0) return false;
  // The bytes that other processes free are seen after a while.
  write_at_ =
      options_.clock->NowNanos() + std::min<std::chrono::nanoseconds>(wait, kLongestBudgetWait).count();
  return true;
}

// Disks read and write at the same time. While transfers of both directions wait, reads do not take the last
// quarter of the places. Writes never take it: a drive that swallows writes keeps their places, and reads of
// good slots must still get through.
std::array<TransferOrder::Load, 2> TransferQueue::LoadOfDirections() const {
  using Load = TransferOrder::Load;
  std::array<size_t, 2> in_flight = {0, 0};
  for (const Flight& flight : flights_) {
    const Transfer* transfer = flight.transfer != nullptr ? flight.transfer.get() : flight.given_up.get();
    if (transfer != nullptr) ++in_flight[static_cast<size_t>(transfer->op)];
  }
  const size_t share = flights_.size() - flights_.size() / 4;
  std::array<Load, 2> load = {Load::kLight, Load::kLight};
  constexpr auto kRead = static_cast<size_t>(IoOp::kRead);
  constexpr auto kWrite = static_cast<size_t>(IoOp::kWrite);
  if (silent_) load[kWrite] = Load::kFull;    // RecordSilence ends the waiting ones
  if (share == flights_.size()) return load;  // too few places to keep one
  if (in_flight[kRead] >= share) load[kRead] = Load::kBusy;
  if (in_flight[kWrite] >= share && !SPILLWAY_STORE_MUTANT(kWritesTakeAllPlaces)) load[kWrite] = Load::kFull;
  return load;
}

void TransferQueue::StartFlight(size_t place, std::shared_ptr<Transfer> transfer) {
  const int64_t now = options_.clock->NowNanos();
  ++busy_places_;
  Flight& flight = flights_[place];
  flight = Flight{};
  flight.start = transfer->submitted;
  flight.length = std::min(options_.request_bytes, transfer->bytes - transfer->submitted);
  flight.started = now;
  transfer->submitted += flight.length;
  ++transfer->in_flight;
  speeds_[static_cast<size_t>(transfer->op)].Begin(now);
  if (options_.write_budget != nullptr && transfer->op == IoOp::kWrite)
    options_.write_budget->CountWritten(flight.length);
  flight.transfer = std::move(transfer);
  AddToBatch(&flight);
}

void TransferQueue::AddToBatch(Flight* flight) {
  const auto place = static_cast<uint64_t>(flight - flights_.data());
  flight->tag = (++next_sequence_ << kTagPlaceBits | place) & INT64_MAX;
  flight->deadline = options_.clock->NowNanos() + options_.request_timeout.count();
  const uint32_t from = flight->start + (SPILLWAY_STORE_MUTANT(kContinuesAtStart) ? 0 : flight->moved);
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
  const int64_t now = options_.clock->NowNanos();
  const bool idle = busy_places_ == given_up_places_;
  int64_t soonest = now + (idle ? std::chrono::nanoseconds(kIdleWait) : kLongestPoll).count();
  if (write_at_ != 0) soonest = std::min(soonest, write_at_);
  for (const Flight& flight : flights_) {
    if (flight.transfer == nullptr) continue;
    if (!flight.late)
      soonest = std::min(soonest, flight.waiting_to_retry ? flight.retry_at : flight.deadline);
    if (wait_ == nullptr && options_.waits != nullptr)
      soonest = std::min(soonest, flight.started + kLongRequest);
  }
  return std::chrono::nanoseconds(std::max<int64_t>(soonest - now, 0));
}

// Compares one result with its request and decides what follows.
void TransferQueue::Judge(const IoResult& result) {
  const size_t place = result.tag & ((1u << kTagPlaceBits) - 1);
  if (result.tag == 0 || place >= flights_.size() ||
      (flights_[place].tag != result.tag && !SPILLWAY_STORE_MUTANT(kStaleResult))) {
    os::Log(os::LogLevel::kError, "engine=" + std::string(engine_->name()) + " path=" + options_.path +
                                      " a result that belongs to no request was ignored");
    return;
  }
  Flight& flight = flights_[place];
  flight.tag = 0;  // a second result for this request is not counted
  flight.late = flight.late && SPILLWAY_STORE_MUTANT(kStaysSilent);
  if (flight.given_up != nullptr) return RecordAnswer(&flight);
  const uint32_t asked = flight.length - flight.moved;
  if (result.result < 0) {
    RetryOrFail(&flight, -result.result);
  } else if (static_cast<uint32_t>(result.result) > asked) {
    Fail(&flight, absl::InternalError(Describe(*flight.transfer) + ": the engine moved more than was asked"));
  } else if (static_cast<uint32_t>(result.result) == asked || SPILLWAY_STORE_MUTANT(kShortIsWhole)) {
    flight.moved = flight.length;
    EndFlight(&flight);
  } else {
    // Direct I/O continues at a page boundary, so part of a page is moved again. No progress at all counts as
    // an error: it is the end of the file, or a disk that takes nothing.
    const auto progress = static_cast<uint32_t>(result.result) / kPageBytes * kPageBytes;
    if (progress == 0) {
      RetryOrFail(&flight, flight.transfer->op == IoOp::kRead ? ENODATA : EIO);
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
  if (flight->interrupted + flight->failed == 0) flight->failing_since = now;
  const int tries = ++(interrupted ? flight->interrupted : flight->failed);
  const absl::Status status = os::StatusFromErrno(error, Describe(*flight->transfer));
  if (!MayTryAgain(*flight, error, now)) {
    // The status does not follow the errno value here: a kernel without memory is not a full disk.
    Fail(flight, interrupted ? absl::UnavailableError(status.message()) : status);
    return;
  }
  ++counters_.retries;
  flight->waiting_to_retry = true;
  if (interrupted) {
    // The first interruption is retried at once. A device that returns EAGAIN again and again gets longer
    // delays.
    flight->retry_at = tries == 1 ? 0 : now + (kInterruptionPause << std::min(tries, 7));
    return;
  }
  flight->retry_at = now + std::min(kFirstFailurePause << std::min(tries - 1, 10), kLongestFailurePause);
  if (failed_at_ == 0 || now - failed_at_ > kQuietTime)
    os::Log(os::LogLevel::kWarn, std::string(status.message()) + "; it is tried again");
  failed_at_ = now;
}

// A read is tried until it succeeds: its bytes may have no other copy, and drives come back. A block whose
// write fails stays where it is.
bool TransferQueue::MayTryAgain(const Flight& flight, int error, int64_t now) const {
  const int64_t failing = now - flight.failing_since;
  const bool interrupted = IsInterruption(error);
  if (!flight.transfer->retries) return interrupted && failing < options_.retry_time.count();
  if (flight.transfer->op == IoOp::kRead && !SPILLWAY_STORE_MUTANT(kReadFailsAtOnce))
    return !IsLastingReadError(error) || failing < options_.retry_time.count();
  if (IsFullDisk(error)) return false;
  return failing < (interrupted ? options_.request_timeout : options_.retry_time).count();
}

void TransferQueue::Fail(Flight* flight, const absl::Status& status) {
  if (flight->transfer->status.ok()) flight->transfer->status = status;
  EndFlight(flight);
}

// Ends a request: frees its place, and completes its transfer if it was the last.
void TransferQueue::EndFlight(Flight* flight) {
  const std::shared_ptr<Transfer> transfer = std::move(flight->transfer);
  flight->transfer = nullptr;
  if (flight->given_up == nullptr) --busy_places_;
  speeds_[static_cast<size_t>(transfer->op)].End(flight->moved, options_.clock->NowNanos());
  --transfer->in_flight;
  CompleteIfEnded(transfer);
}

void TransferQueue::CompleteIfEnded(const std::shared_ptr<Transfer>& transfer) {
  const bool all_cut = transfer->submitted >= transfer->bytes || !transfer->status.ok();
  const bool in_flight = transfer->in_flight > 0 && !SPILLWAY_STORE_MUTANT(kEndsInFlight);
  if (transfer->completed || in_flight || !all_cut) return;
  transfer->completed = true;
  queued_bytes_[static_cast<size_t>(transfer->op)] -= transfer->bytes;
  if (transfer->status.ok()) {
    (transfer->op == IoOp::kWrite ? counters_.bytes_written : counters_.bytes_read) += transfer->bytes;
  } else if (!absl::IsCancelled(transfer->status) && !ending_) {
    ++counters_.errors;
  }
  // `done` is moved out, so that everything it captured is freed although the queue may still list the
  // transfer.
  const std::function<void(absl::Status)> done = std::move(transfer->done);
  transfer->done = nullptr;
  done(transfer->status);
  CallAnswered(transfer.get());
}

// Called after a `done` with DeadlineExceeded: calls `answered` when the kernel has nothing of the transfer
// any more.
void TransferQueue::CallAnswered(Transfer* transfer) {
  if (!transfer->completed || transfer->given_up > 0 || !absl::IsDeadlineExceeded(transfer->status)) return;
  const std::function<void()> answered = std::exchange(transfer->answered, nullptr);
  if (answered) answered();
}

// Enters the oldest request as a wait when it takes long, until it ends.
void TransferQueue::RecordWaits(int64_t now) {
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

std::string TransferQueue::Describe(const Transfer& transfer) const {
  return "spill file in " + options_.path + ": " + (transfer.op == IoOp::kWrite ? "write" : "read") + " of " +
         std::to_string(transfer.bytes) + " bytes at offset " + std::to_string(transfer.offset);
}

}  // namespace spillway::io
