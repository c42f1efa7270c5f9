#include "allocator/residency/transfer/link_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "allocator/residency/transfer/mapping.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

constexpr double kBatchNanos = 1e6;          // duration at which a batch aims
constexpr uint32_t kMaxCopies = 8;           // in one direction of a batch
constexpr int64_t kRetryAfter = 10'000'000;  // when there were no buffers or chunks
constexpr double kDrift = 0.25;              // of the job's own rates since the last measurement
constexpr uint64_t kChunksOfRound = 2;       // one for each direction; if only one is free, half of it

size_t PlaceOf(LinkDirection direction) { return static_cast<size_t>(direction); }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<policy::LinkRates> RatesTogetherOf(const LinkBatch& batch, const policy::LinkRates& alone) {
  const double in = batch.in_end - batch.in_begin, out = batch.out_end - batch.out_begin;
  const double together = std::min(batch.in_end, batch.out_end) - std::max(batch.in_begin, batch.out_begin);
  if (!(together > 0) || together < std::min(in, out) / 2) return std::nullopt;
  const auto rate = [together](double bytes, double nanos, double rate_alone) {
    return (bytes - rate_alone * (nanos - together) / 1e9) / together * 1e9;
  };
  const policy::LinkRates both{rate(batch.in_bytes, in, alone.in), rate(batch.out_bytes, out, alone.out)};
  if (!(both.in > 0) || !(both.out > 0)) return std::nullopt;
  return both;
}

LinkProbe::LinkProbe(Core* core, Charges* charges, CopyStreams* copies)
    : core_(core), charges_(charges), copies_(copies) {}

bool LinkProbe::Due(int64_t now) {
  if (given_up_ || !core_->options.measure_link || !core_->pressure.load() || now < not_before_) return false;
  if (core_->link.busy(LinkDirection::kIn) || core_->link.busy(LinkDirection::kOut)) return false;
  if (!core_->link.measured()) return true;
  bool drifted = false;
  for (const LinkDirection direction : {LinkDirection::kOut, LinkDirection::kIn}) {
    double& then = own_rates_[PlaceOf(direction)];
    const double rate = core_->link.OwnRate(direction);
    if (then == 0) then = rate;  // too little had moved by the time of the measurement
    drifted |= std::abs(rate - then) > kDrift * then;
  }
  return drifted;
}

bool LinkProbe::Poll() {
  const int64_t now = os::Clock::System()->NowNanos();
  if (batch_ == Batch::kNone) return Due(now) && Begin(now);
  for (const CUevent event : end_events_) {
    if (copies_->Done(event)) continue;
    overdue_ = now - began_ > kMaxNanos;
    return false;
  }
  if (absl::Status status = Next(now); !status.ok()) Finish(now, /*failed=*/true);
  return true;
}

bool LinkProbe::Begin(int64_t now) {
  if (!TakeMemory()) {
    not_before_ = now + kRetryAfter;
    GiveMemoryBack();
    return false;
  }
  began_ = now;
  overdue_ = false;
  spoilt_ = false;
  copies_of_batch_ = 1;
  rounds_.clear();
  absl::Status status = MakeEvents() ? Map() : absl::InternalError("no events");
  if (status.ok()) status = Enqueue(Batch::kFirst);
  if (!status.ok()) Finish(now, /*failed=*/true);
  return true;
}

// Takes free handles as they are, since nothing is created for a measurement, and a pinned buffer for each
// direction.
bool LinkProbe::TakeMemory() {
  HostPool* const host = core_->parts.host;
  if (host == nullptr) return false;
  {
    const TableLock lock(core_->table);
    charges_->chunks(lock).TakeAtLeast(kChunksOfRound, &handles_);
  }
  if (handles_.empty()) return false;
  for (const LinkDirection direction : {LinkDirection::kOut, LinkDirection::kIn}) {
    const HostUse staging =
        direction == LinkDirection::kOut ? HostUse::kEvictStaging : HostUse::kFaultStaging;
    for (const HostUse use : {staging, HostUse::kStorage}) {
      std::vector<PinnedBuffer> taken;
      if (host->Limit(use) == 0 || host->Take(use, 1, &taken) == 0) continue;
      buffers_[PlaceOf(direction)] = {use, taken[0]};
      break;
    }
    if (!buffers_[PlaceOf(direction)]) return false;
  }
  return true;
}

uint64_t LinkProbe::CopyBytes() const {
  return std::min(kChunksOfRound, ChunksOf(handles_)) * core_->chunk_bytes / 2;
}

absl::Status LinkProbe::Map() {
  const CudaDriver& driver = *core_->parts.driver;
  SPILLWAY_RETURN_IF_ERROR(
      driver.ToStatus(driver.cuMemAddressReserve(&address_, ChunksOf(handles_) * core_->chunk_bytes, 0, 0, 0),
                      "reserving addresses to measure the link"));
  absl::Status status = MapHandles(core_, address_, handles_);
  if (status.ok()) return status;
  if (core_->error.any()) {  // the handles may still be mapped, and belong to nobody any more
    handles_.clear();
  } else {
    driver.cuMemAddressFree(address_, ChunksOf(handles_) * core_->chunk_bytes);
  }
  address_ = 0;
  return status;
}

bool LinkProbe::MakeEvents() {
  for (std::array<CUevent, 2>* events : {&begin_events_, &end_events_}) {
    for (CUevent& event : *events) {
      if (event == nullptr && core_->parts.driver->cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    }
  }
  return true;
}

absl::Status LinkProbe::EnqueueDirection(LinkDirection direction) {
  const uint64_t bytes = CopyBytes();
  const bool in = direction == LinkDirection::kIn;
  std::byte* const host = buffers_[PlaceOf(direction)]->second.data;
  for (uint32_t i = 0; i < copies_of_batch_; ++i) {
    SPILLWAY_RETURN_IF_ERROR(in ? copies_->In(address_ + bytes, host, static_cast<uint32_t>(bytes))
                                : copies_->Out(host, address_, static_cast<uint32_t>(bytes)));
  }
  return absl::OkStatus();
}

// Both directions record all of their events, whether or not they copy, so that one rule reads them.
absl::Status LinkProbe::Enqueue(Batch batch) {
  batch_ = batch;
  batch_began_ = os::Clock::System()->NowNanos();
  enqueued_ = copies_->enqueued();
  const size_t in = PlaceOf(LinkDirection::kIn), out = PlaceOf(LinkDirection::kOut);
  SPILLWAY_RETURN_IF_ERROR(copies_->RecordOut(begin_events_[out]));
  SPILLWAY_RETURN_IF_ERROR(copies_->MakeInWait(begin_events_[out]));
  SPILLWAY_RETURN_IF_ERROR(copies_->RecordIn(begin_events_[in]));
  if (batch != Batch::kIn) SPILLWAY_RETURN_IF_ERROR(EnqueueDirection(LinkDirection::kOut));
  if (batch != Batch::kOut) SPILLWAY_RETURN_IF_ERROR(EnqueueDirection(LinkDirection::kIn));
  enqueued_ += (batch == Batch::kIn || batch == Batch::kOut ? 1 : 2) * copies_of_batch_;
  SPILLWAY_RETURN_IF_ERROR(copies_->RecordOut(end_events_[out]));
  return copies_->RecordIn(end_events_[in]);
}

absl::StatusOr<LinkBatch> LinkProbe::Times() const {
  const CudaDriver& driver = *core_->parts.driver;
  const size_t in = PlaceOf(LinkDirection::kIn), out = PlaceOf(LinkDirection::kOut);
  const auto since = [&](CUevent event, double* nanos) {
    float milliseconds = 0;
    const CUresult result = driver.cuEventElapsedTime(&milliseconds, begin_events_[out], event);
    *nanos = static_cast<double>(milliseconds) * 1e6;
    return driver.ToStatus(result, "measuring the link");
  };
  LinkBatch batch;
  SPILLWAY_RETURN_IF_ERROR(since(begin_events_[in], &batch.in_begin));
  SPILLWAY_RETURN_IF_ERROR(since(end_events_[in], &batch.in_end));
  SPILLWAY_RETURN_IF_ERROR(since(end_events_[out], &batch.out_end));
  batch.in_bytes = batch.out_bytes = static_cast<double>(copies_of_batch_) * static_cast<double>(CopyBytes());
  return batch;
}

// Called when a batch has ended: takes its times, and begins the next batch or ends the measurement.
absl::Status LinkProbe::Next(int64_t now) {
  SPILLWAY_ASSIGN_OR_RETURN(const LinkBatch times, Times());
  spoilt_ |= copies_->enqueued() != enqueued_;
  const auto rate = [](double bytes, double nanos) { return nanos > 0 ? bytes * 1e9 / nanos : 0; };
  Batch next = Batch::kIn;
  switch (batch_) {
    case Batch::kFirst: {  // the first copies are slow, and only show how many make a batch
      const double nanos = std::max({times.in_end - times.in_begin, times.out_end, 1.0});
      copies_of_batch_ = static_cast<uint32_t>(std::clamp(kBatchNanos / nanos, 1.0, double{kMaxCopies}));
      break;
    }
    case Batch::kIn:
      round_.alone.in = rate(times.in_bytes, times.in_end - times.in_begin);
      next = Batch::kOut;
      break;
    case Batch::kOut:
      round_.alone.out = rate(times.out_bytes, times.out_end);
      next = Batch::kBoth;
      break;
    case Batch::kBoth:
      if (const auto both = RatesTogetherOf(times, round_.alone); both && !spoilt_) {
        round_.both = *both;
        rounds_.push_back(round_);
      }
      spoilt_ = false;
      break;
    case Batch::kNone: break;
  }
  const bool late = now - began_ + 2 * (now - batch_began_) > kMaxNanos;
  if (rounds_.size() == kRounds || late) {
    Finish(now, /*failed=*/false);
    return absl::OkStatus();
  }
  return Enqueue(next);
}

void LinkProbe::Finish(int64_t now, bool failed) {
  const bool enqueued = batch_ != Batch::kNone;
  batch_ = Batch::kNone;
  not_before_ = now + core_->options.link_apart_nanos;
  given_up_ = failed;
  core_->counters.link_measuring_nanos += static_cast<uint64_t>(now - began_);
  // Copies that were enqueued before a call failed may still be under way.
  if (failed && enqueued && !(copies_->AwaitEndOut().ok() && copies_->AwaitEndIn().ok())) return;
  GiveMemoryBack();
  if (rounds_.empty() || failed) {
    ++core_->counters.link_measurements_dropped;
    return;
  }
  const auto median = [this](double policy::LinkRates::*member, policy::LinkRates Round::*which) {
    std::vector<double> values;
    for (const Round& round : rounds_) values.push_back(round.*which.*member);
    return Median(std::move(values));
  };
  policy::Machine link;
  link.pcie_in = median(&policy::LinkRates::in, &Round::alone);
  link.pcie_out = median(&policy::LinkRates::out, &Round::alone);
  const policy::LinkRates both = policy::PossibleTogether(
      link, {median(&policy::LinkRates::in, &Round::both), median(&policy::LinkRates::out, &Round::both)});
  core_->link.SetMeasured({link.pcie_in, link.pcie_out}, both);
  own_rates_ = {core_->link.OwnRate(LinkDirection::kOut), core_->link.OwnRate(LinkDirection::kIn)};
  ++core_->counters.link_measurements;
}

void LinkProbe::GiveMemoryBack() {
  for (auto& buffer : buffers_) {
    if (buffer) core_->parts.host->Give(buffer->first, buffer->second);
    buffer.reset();
  }
  if (address_ != 0) {
    const uint64_t bytes = ChunksOf(handles_) * core_->chunk_bytes;
    if (!UnmapHandles(core_, address_, bytes).ok()) return;
    core_->parts.driver->cuMemAddressFree(address_, bytes);
    address_ = 0;
  }
  if (handles_.empty()) return;
  const TableLock lock(core_->table);
  charges_->chunks(lock).Give(&handles_);
  core_->table.changed.NotifyAll();
}

}  // namespace spillway::allocator
