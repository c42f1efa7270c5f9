// Ends transfers that the disk does not end: requests that are given up, and the end of the queue.

#include "io/store/transfer_queue.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/log.h"
#include "io/store/test_points.h"

namespace spillway::io {
namespace {

constexpr auto kStopSlack = std::chrono::milliseconds(150);
// A thread that is later than this was stopped, since no scheduler is as late.
constexpr auto kStoppedProcess = std::chrono::seconds(1);

}  // namespace

// ---- Requests that do not come back.

// Gives up a request. Its place stays taken: the kernel may still use the buffer and answer.
void TransferQueue::GiveUp(Flight* flight) {
  flight->given_up = flight->transfer;
  ++given_up_places_;
  ++flight->transfer->given_up;
  // This status replaces any other error of the transfer: the caller must know that the kernel may still use
  // the buffer.
  flight->transfer->status = absl::DeadlineExceededError(Describe(*flight->transfer) + ": never came back");
  EndFlight(flight);
}

// The kernel has answered a request that was given up.
void TransferQueue::RecordAnswer(Flight* flight) {
  const std::shared_ptr<Transfer> transfer = std::exchange(flight->given_up, nullptr);
  --given_up_places_;
  --busy_places_;
  --transfer->given_up;
  CallAnswered(transfer.get());
}

// A process that is stopped (SIGSTOP, a suspended job) gets no results meanwhile, while the clock goes on.
// The requests get that time once more.
void TransferQueue::AllowForStop(std::chrono::nanoseconds asked) {
  const int64_t now = options_.clock->NowNanos();
  const int64_t late = now - looked_at_ - asked.count();
  looked_at_ = now;
  if (late < std::chrono::nanoseconds(kStoppedProcess).count()) return;
  for (Flight& flight : flights_) {
    flight.started += late;
    flight.deadline += late;
    flight.failing_since += late;
  }
}

// Reads wait for a silent drive: it may come back, and there is no other place from which to read. Writes are
// given up, and their blocks stay where they are.
void TransferQueue::RecordLateFlights() {
  const int64_t now = options_.clock->NowNanos();
  const auto is_late = [now](const Flight& flight) {
    return flight.transfer != nullptr && !flight.late && !flight.waiting_to_retry && now >= flight.deadline;
  };
  if (std::any_of(flights_.begin(), flights_.end(), is_late)) {
    // Results that have come meanwhile are not late.
    std::array<IoResult, 64> results;
    while (const size_t count = engine_->Poll(results, std::chrono::nanoseconds::zero())) {
      for (size_t i = 0; i < count; ++i) Judge(results[i]);
    }
  }
  for (Flight& flight : flights_) flight.late = flight.late || is_late(flight);
  RecordSilence();  // first, so that the `done` of a write that was given up finds the directory closed
  for (Flight& flight : flights_) {
    if (!flight.late || flight.transfer == nullptr) continue;
    if (flight.transfer->op == IoOp::kWrite || SPILLWAY_STORE_MUTANT(kReadGivenUp)) GiveUp(&flight);
  }
}

void TransferQueue::RecordSilence() {
  const bool silent =
      std::any_of(flights_.begin(), flights_.end(), [](const Flight& flight) { return flight.late; });
  if (silent) {
    std::deque<std::shared_ptr<Transfer>> writes;
    {
      os::MutexLock lock(&mu_);
      writes = order_.TakeWrites();
    }
    EndTransfers(writes, EndReason::kSilent);
  }
  if (std::exchange(silent_, silent) == silent) return;
  os::Log(os::LogLevel::kWarn,
          "path=" + options_.path +
              (silent ? " does not answer and gets no new spill slots until it does" : " answers again"));
  if (options_.silence_changed) options_.silence_changed(silent);
}

// Completes all waiting transfers that have no request in flight, as canceled. A partly submitted transfer
// ends with its last request.
void TransferQueue::EndWaiting() {
  std::deque<std::shared_ptr<Transfer>> waiting;
  {
    os::MutexLock lock(&mu_);
    waiting = order_.TakeAll();
  }
  EndTransfers(waiting, EndReason::kCancelled);
}

void TransferQueue::EndTransfers(const std::deque<std::shared_ptr<Transfer>>& transfers, EndReason reason) {
  for (const std::shared_ptr<Transfer>& transfer : transfers) {
    if (transfer->completed || transfer->submitted >= transfer->bytes) continue;
    if (transfer->status.ok()) {
      transfer->status = reason == EndReason::kCancelled
                             ? absl::CancelledError(Describe(*transfer) + ": cancelled")
                             : absl::UnavailableError(Describe(*transfer) + ": the disk does not answer");
    }
    CompleteIfEnded(transfer);
  }
}

// ---- The end of the queue.

void TransferQueue::BeginStop(std::chrono::nanoseconds timeout) {
  os::MutexLock lock(&mu_);
  SPILLWAY_CHECK(!stopping_);
  stopping_ = true;
  stop_deadline_ = options_.clock->NowNanos() + timeout.count();
  engine_->Wake();
}

bool TransferQueue::FinishStop(std::chrono::nanoseconds timeout) {
  const auto deadline = os::SteadyClock::now() + timeout;
  bool joins = false;
  {
    os::MutexLock lock(&mu_);
    while (!ended_ && os::SteadyClock::now() < deadline) {
      ended_cv_.WaitFor(&mu_, deadline - os::SteadyClock::now());
    }
    joins = ended_ && answered_;  // a thread does not end while the kernel has requests of it
  }
  if (joins) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return joins;
}

// Leaves the requests under way. They are no errors of the disk, which may just be busy.
bool TransferQueue::EndAll() {
  ending_ = true;
  for (Flight& flight : flights_) {
    if (flight.transfer == nullptr) continue;
    if (flight.waiting_to_retry) {  // not in the kernel, so its buffer is not in use
      Fail(&flight, absl::CancelledError(Describe(*flight.transfer) + ": cancelled"));
      continue;
    }
    GiveUp(&flight);
  }
  const bool answered = engine_->Stop(kStopSlack);
  if (!answered) {
    os::Log(os::LogLevel::kWarn, "path=" + options_.path + " the disk still had not answered at the end");
  }
  return answered;
}

}  // namespace spillway::io
