#include "tests/stress/ill_drives.h"

#include <cerrno>
#include <string>

#include "tests/fakes/faulty_engine.h"

namespace spillway::stress {

using io::Drive;
using io::IoOp;
using std::chrono::milliseconds;

IllDrives::IllDrives(Board* board) : board_(board) {
  for (int i = 0; i < board->settings().directories; ++i) drives_.push_back(std::make_shared<Drive>());
}

std::unique_ptr<io::IoEngine> IllDrives::Wrap(std::unique_ptr<io::IoEngine> engine, size_t directory) {
  const RunSettings& settings = board_->settings();
  io::FaultPlan plan;
  plan.random_rate = settings.random_rate;
  plan.duplicate_rate = settings.duplicate_rate;
  plan.damage_rate = settings.damage_rate;
  plan.misdirect = io::kSlotBytes;
  plan.seed = settings.seed * 31 + directory;
  plan.reorder = true;
  return std::make_unique<io::DriveEngine>(drives_[directory], io::MakeFaultyEngine(std::move(engine), plan));
}

void IllDrives::Start() {
  if (!board_->settings().ill) return;
  for (size_t i = 0; i < drives_.size(); ++i) threads_.emplace_back([this, i] { Run(i); });
}

void IllDrives::Heal() {
  {
    const std::lock_guard lock(mu_);
    healed_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool IllDrives::Pause(milliseconds time) {
  std::unique_lock lock(mu_);
  return !changed_.wait_for(lock, time, [this] { return healed_; });
}

void IllDrives::Run(size_t directory) {
  std::mt19937_64 random(board_->settings().seed * 101 + directory);
  const auto up_to = [&random](int limit) {
    return milliseconds(1 + random() % static_cast<uint64_t>(limit));
  };
  Drive& drive = *drives_[directory];
  const auto silence = static_cast<int>(2 * RunSettings::kRequestTimeout.count());
  const auto errors = static_cast<int>(3 * RunSettings::kRetryTime.count());
  while (Pause(up_to(300))) {
    switch (random() % 9) {
      case 0:
        drive.Set(IoOp::kRead, EIO);
        Pause(up_to(errors));
        break;
      case 1:
      case 2:
        drive.Set(IoOp::kWrite, EIO);
        Pause(up_to(6 * errors));
        break;
      case 3:
        drive.Set(IoOp::kRead, ENODATA);
        Pause(up_to(errors));
        break;
      case 4:
        drive.Set(IoOp::kWrite, ENOSPC);
        Pause(up_to(5));
        break;
      case 5:
        drive.Set(IoOp::kRead, Drive::kHolds);
        Pause(up_to(silence));
        break;
      case 6:
      case 7: KeepWrites(directory, up_to(silence)); break;
      default:
        drive.Set(IoOp::kRead, Drive::kHolds);
        drive.Set(IoOp::kWrite, Drive::kHolds);
        Pause(up_to(silence));
    }
    drive.Heal();
  }
}

// Longer than asked, where a read waits that has not ended meanwhile: it must come without the writes.
void IllDrives::KeepWrites(size_t directory, milliseconds time) {
  const auto index = static_cast<uint32_t>(directory);
  const auto end = std::chrono::steady_clock::now() + board_->patience();
  drives_[directory]->Set(IoOp::kWrite, Drive::kHolds);
  const uint64_t done = board_->reads_done(index);
  bool goes_on = Pause(time);
  while (goes_on && board_->reads_done(index) == done && board_->reads_waiting(index) > 0) {
    if (std::chrono::steady_clock::now() > end)
      board_->Fail("a read waits behind writes that the drive keeps");
    goes_on = Pause(milliseconds(5));
  }
}

}  // namespace spillway::stress
