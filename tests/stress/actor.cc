#include "tests/stress/actor.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "io/engine/engine.h"
#include "tests/io/store_helpers.h"

namespace spillway::stress {

using io::IoOp;
using io::kPageBytes;
using io::kSlotBytes;
using io::Priority;

namespace {

constexpr size_t kBuffers = 6;

bool Mentions(const absl::Status& status, const char* words) {
  return status.message().find(words) != absl::string_view::npos;
}

// What lay there before must not pass for what is to come.
void Wipe(char* data, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += kPageBytes) std::memset(data + at, 0, sizeof(uint64_t));
}

}  // namespace

Actor::Actor(io::SpillStore* store, Board* board, size_t number)
    : store_(store), board_(board), number_(number), random_(board->settings().seed * 1009 + number) {
  for (size_t i = 0; i < kBuffers; ++i) {
    buffers_.push_back(std::make_unique<io::AlignedBuffer>(kSlotBytes));
    free_buffers_.push_back(i);
  }
}

void Actor::Run(uint64_t operations) {
  while (operations_ < operations) {
    Collect(false);
    operations_ += Step() ? 1 : 0;
  }
  Drain();
  board_->Leaves(number_);
}

bool Actor::Step() {
  while (free_buffers_.empty()) Collect(true);
  switch (random_() % 16) {
    case 0:
    case 1: return Take();
    case 2:
    case 3:
    case 4:
    case 5: return Write();
    case 6: return ReadEmpty();
    case 7: return Release();
    case 8: return Hasten();
    default: return Read();
  }
}

// More than there are, now and then.
bool Actor::Take() {
  if (slots_.size() >= board_->settings().slots_per_actor) return Release();
  const size_t count = 1 + random_() % 4;
  const bool waits = random_() % 4 == 0;
  board_->GoesOn(number_, waits ? "ReserveSlots" : "TakeSlots");
  absl::StatusOr<std::vector<io::SlotId>> taken =
      waits ? store_->ReserveSlots(count) : store_->TakeSlots(count);
  if (!taken.ok()) {
    const bool soon = absl::IsUnavailable(taken.status()) && !waits;
    if (!soon && !absl::IsResourceExhausted(taken.status()))
      board_->Fail("slots: " + taken.status().ToString());
    for (int i = 0; i < 3; ++i) Release();
    return true;
  }
  if (taken->size() != count) board_->Fail("asked for other than the slots that came");
  for (const io::SlotId id : *taken) {
    board_->Take(id);
    slots_.push_back(Slot{.id = id});
  }
  return true;
}

Actor::Slot* Actor::Any() {
  if (slots_.empty()) return nullptr;
  return &*std::next(slots_.begin(), static_cast<std::ptrdiff_t>(random_() % slots_.size()));
}

// 4 KiB to 2 MiB; the half of them are at most 64 KiB.
uint32_t Actor::DrawBytes() {
  constexpr double kDoublings = 9;                                 // from a page to a slot
  const double kShape = std::log(4 / kDoublings) / std::log(0.5);  // 4 doublings, 64 KiB, at the median
  const double drawn = std::uniform_real_distribution<>(0, 1)(random_);
  const double pages = std::exp2(kDoublings * std::pow(drawn, kShape));
  return static_cast<uint32_t>(pages) * kPageBytes;
}

bool Actor::Write() {
  Slot* const slot = Any();
  if (slot == nullptr || slot->writing || slot->reads > 0) return false;
  auto* const request = new Request{
      .slot = slot, .op = IoOp::kWrite, .pattern = random_(), .bytes = DrawBytes(), .buffer = TakeBuffer()};
  char* const data = buffers_[request->buffer]->data();
  io::FillPattern(data, request->bytes, request->pattern);
  slot->writing = true;
  slot->bytes = 0;
  slot->damaged = false;
  ++under_way_;
  store_->Write(slot->id, data, request->bytes, Ends(request));
  return true;
}

bool Actor::Read() {
  Slot* const slot = Any();
  if (slot == nullptr || slot->writing || slot->bytes == 0) return false;
  ReadOf(slot, random_() % 2 == 0 ? Priority::kDemand : Priority::kPrefetch);
  return true;
}

void Actor::ReadOf(Slot* slot, Priority priority) {
  auto* const request = new Request{.slot = slot,
                                    .op = IoOp::kRead,
                                    .priority = priority,
                                    .pattern = slot->pattern,
                                    .bytes = slot->bytes,
                                    .cancellations = slot->cancellations,
                                    .buffer = TakeBuffer()};
  char* const data = buffers_[request->buffer]->data();
  Wipe(data, request->bytes);
  ++slot->reads;
  ++under_way_;
  board_->ReadBegins(slot->id.directory);
  store_->Read(slot->id, data, request->bytes, priority, Ends(request));
}

// A slot that has nothing, or has another number of bytes.
bool Actor::ReadEmpty() {
  Slot* const slot = Any();
  if (slot == nullptr || slot->writing || slot->damaged) return false;
  const uint32_t bytes = slot->bytes == kPageBytes ? 2 * kPageBytes : kPageBytes;
  const size_t buffer = TakeBuffer();
  const absl::Status status = io::ReadSync(store_, slot->id, buffers_[buffer]->data(), bytes);
  if (!absl::IsFailedPrecondition(status))
    board_->Fail("a read of what was not written: " + status.ToString());
  free_buffers_.push_back(buffer);
  return true;
}

bool Actor::Release() {
  Slot* const slot = Any();
  if (slot == nullptr || slot->writing || slot->reads > 0) return false;
  GiveBack(slot);
  return true;
}

void Actor::GiveBack(Slot* slot) {
  board_->Give(slot->id);
  store_->ReleaseSlot(slot->id);
  slots_.remove_if([slot](const Slot& one) { return &one == slot; });
}

bool Actor::Hasten() {
  Slot* const slot = Any();
  if (slot == nullptr) return false;
  if (random_() % 2 == 0) {
    store_->Promote(slot->id);
  } else {
    ++slot->cancellations;
    store_->CancelPrefetch(slot->id);
  }
  return true;
}

size_t Actor::TakeBuffer() {
  const size_t buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return buffer;
}

io::SpillStore::Done Actor::Ends(Request* request) {
  return [this, request](absl::Status status) {
    const std::lock_guard lock(mu_);
    if (++request->ended > 1) board_->Fail("ended twice: " + Describe(*request));
    request->status = std::move(status);
    // Here, not where it is collected: the actor may be waiting for the drive.
    if (request->op == IoOp::kRead) board_->ReadEnds(request->slot->id.directory);
    ended_.push_back(request);
    changed_.notify_one();
  };
}

void Actor::Collect(bool wait) {
  std::vector<Request*> ended;
  {
    std::unique_lock lock(mu_);
    board_->GoesOn(number_, "a request");
    if (wait) changed_.wait(lock, [this] { return !ended_.empty(); });
    ended.swap(ended_);
  }
  for (Request* request : ended) Finish(request);
}

void Actor::Drain() {
  while (under_way_ > 0) Collect(true);
}

void Actor::Finish(Request* request) {
  --under_way_;
  if (request->status.ok()) bytes_moved_ += request->bytes;
  if (request->op == IoOp::kWrite) {
    FinishWrite(*request);
  } else {
    FinishRead(*request);
  }
  free_buffers_.push_back(request->buffer);
  delete request;
}

void Actor::FinishWrite(const Request& request) {
  Slot* const slot = request.slot;
  slot->writing = false;
  if (request.status.ok()) {
    slot->pattern = request.pattern;
    slot->bytes = request.bytes;
  } else if (absl::IsCancelled(request.status) || board_->settings().clean()) {
    board_->Fail(Describe(request));
  } else if (absl::IsDeadlineExceeded(request.status)) {
    GiveBack(slot);
  }
}

void Actor::FinishRead(const Request& request) {
  Slot* const slot = request.slot;
  --slot->reads;
  const RunSettings& settings = board_->settings();
  if (request.status.ok()) {
    io::FillPattern(expected_.data(), request.bytes, request.pattern);
    if (std::memcmp(expected_.data(), buffers_[request.buffer]->data(), request.bytes) != 0)
      board_->Fail("wrong bytes: " + Describe(request));
  } else if (absl::IsCancelled(request.status)) {
    const bool asked = slot->cancellations > request.cancellations && request.priority == Priority::kPrefetch;
    if (!asked) board_->Fail("cancelled by nobody: " + Describe(request));
  } else if (settings.damage_rate > 0 && Mentions(request.status, "checksum")) {
    slot->bytes = 0;  // found, and not to be had any more
    slot->damaged = true;
  } else if (!(settings.ill || settings.damage_rate > 0) || !Mentions(request.status, "errno 61")) {
    board_->Fail(Describe(request));
  }
}

std::string Actor::Describe(const Request& request) const {
  return std::string(request.op == IoOp::kWrite ? "write" : "read") + " of " + std::to_string(request.bytes) +
         " bytes, slot " + std::to_string(request.slot->id.index) + " of directory " +
         std::to_string(request.slot->id.directory) + ": " + request.status.ToString();
}

void Actor::ReadAllBack() {
  for (Slot& slot : slots_) {
    board_->GoesOn(number_, "reading all back");
    while (free_buffers_.empty()) Collect(true);
    if (slot.bytes > 0) ReadOf(&slot, Priority::kDemand);
  }
  Drain();
  board_->Leaves(number_);
}

void Actor::GiveAll() {
  while (!slots_.empty()) Release();
}

}  // namespace spillway::stress
