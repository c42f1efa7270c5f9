#include "io/store/transfer_order.h"

#include <utility>

namespace spillway::io {

void TransferOrder::Push(std::shared_ptr<Transfer> transfer) {
  waiting_[static_cast<size_t>(transfer->transfer_class)].push_back(std::move(transfer));
}

// Chooses among the classes with a waiting transfer whose direction is not full. A class whose direction is
// not busy precedes one whose direction is. Among equals the first class wins, unless a later one has been
// passed over kMaxPassedOver times.
std::shared_ptr<Transfer> TransferOrder::Next(const std::array<Load, 2>& load) {
  const auto load_of = [&load](size_t place) {
    return load[static_cast<size_t>(place == static_cast<size_t>(TransferClass::kWrite) ? IoOp::kWrite
                                                                                        : IoOp::kRead)];
  };
  const auto is_busy = [&load_of](size_t place) { return load_of(place) == Load::kBusy; };
  size_t chosen = kTransferClasses;
  for (size_t i = 0; i < kTransferClasses; ++i) {
    std::deque<std::shared_ptr<Transfer>>& queue = waiting_[i];
    // Transfers that are fully submitted or have failed leave the order here.
    while (!queue.empty() &&
           (queue.front()->submitted >= queue.front()->bytes || !queue.front()->status.ok())) {
      queue.pop_front();
    }
    if (queue.empty() || load_of(i) == Load::kFull) {
      passed_over_[i] = 0;
    } else if (chosen == kTransferClasses || is_busy(chosen) != is_busy(i)) {
      if (chosen == kTransferClasses || is_busy(chosen)) chosen = i;
    } else if (passed_over_[i] >= kMaxPassedOver) {
      chosen = i;
    }
  }
  if (chosen == kTransferClasses) return nullptr;
  for (size_t i = 0; i < kTransferClasses; ++i) {
    if (i == chosen) {
      passed_over_[i] = 0;
    } else if (!waiting_[i].empty() && load_of(i) != Load::kFull) {
      ++passed_over_[i];
    }
  }
  return waiting_[chosen].front();
}

void TransferOrder::Promote(uint32_t slot) {
  std::deque<std::shared_ptr<Transfer>>& prefetch =
      waiting_[static_cast<size_t>(TransferClass::kPrefetchRead)];
  std::deque<std::shared_ptr<Transfer>> kept;
  for (std::shared_ptr<Transfer>& transfer : prefetch) {
    if (transfer->slot != slot) {
      kept.push_back(std::move(transfer));
      continue;
    }
    transfer->transfer_class = TransferClass::kDemandRead;
    waiting_[static_cast<size_t>(TransferClass::kDemandRead)].push_back(std::move(transfer));
  }
  prefetch = std::move(kept);
}

std::deque<std::shared_ptr<Transfer>> TransferOrder::TakeUnstartedPrefetch(uint32_t slot) {
  std::deque<std::shared_ptr<Transfer>>& prefetch =
      waiting_[static_cast<size_t>(TransferClass::kPrefetchRead)];
  std::deque<std::shared_ptr<Transfer>> taken;
  std::deque<std::shared_ptr<Transfer>> kept;
  for (std::shared_ptr<Transfer>& transfer : prefetch) {
    const bool takes = transfer->slot == slot && transfer->submitted == 0;
    (takes ? taken : kept).push_back(std::move(transfer));
  }
  prefetch = std::move(kept);
  return taken;
}

std::deque<std::shared_ptr<Transfer>> TransferOrder::TakeWrites() {
  return std::exchange(waiting_[static_cast<size_t>(TransferClass::kWrite)], {});
}

std::deque<std::shared_ptr<Transfer>> TransferOrder::TakeAll() {
  std::deque<std::shared_ptr<Transfer>> all;
  for (std::deque<std::shared_ptr<Transfer>>& queue : waiting_) {
    for (std::shared_ptr<Transfer>& transfer : queue) all.push_back(std::move(transfer));
    queue.clear();
  }
  return all;
}

bool TransferOrder::empty() const {
  for (const std::deque<std::shared_ptr<Transfer>>& queue : waiting_) {
    if (!queue.empty()) return false;
  }
  return true;
}

}  // namespace spillway::io
