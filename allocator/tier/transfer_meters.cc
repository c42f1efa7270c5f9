#include "allocator/tier/transfer_meters.h"

#include <algorithm>

namespace spillway::allocator {
namespace {

double Of(const policy::LinkRates& rates, LinkDirection direction) {
  return direction == LinkDirection::kIn ? rates.in : rates.out;
}

}  // namespace

double LinkMeter::RatioLocked(LinkDirection direction) const {
  return measured_ ? Of(measured_->both, direction) / Of(measured_->alone, direction) : 1;
}

void LinkMeter::AdvanceLocked(int64_t now) {
  const int64_t passed = std::max<int64_t>(0, now - now_);  // two threads may read the clock in either order
  now_ = std::max(now_, now);
  const bool both = sides_[0].under_way != 0 && sides_[1].under_way != 0;
  for (const LinkDirection direction : {LinkDirection::kOut, LinkDirection::kIn}) {
    if (At(direction).under_way == 0) continue;
    const double counts = both ? RatioLocked(direction) : 1;
    At(direction).mean.AddNanos(static_cast<int64_t>(static_cast<double>(passed) * counts));
  }
}

void LinkMeter::Begin(LinkDirection direction, int64_t now) {
  os::MutexLock lock(&mu_);
  AdvanceLocked(now);
  ++At(direction).under_way;
}

void LinkMeter::End(LinkDirection direction, uint64_t bytes, int64_t now) {
  os::MutexLock lock(&mu_);
  AdvanceLocked(now);
  --At(direction).under_way;
  At(direction).mean.AddBytes(bytes);
}

void LinkMeter::SetMeasured(const policy::LinkRates& alone, const policy::LinkRates& both) {
  os::MutexLock lock(&mu_);
  measured_ = Rates{alone, both};
}

double LinkMeter::RateLocked(LinkDirection direction) const {
  const double own = sides_[static_cast<size_t>(direction)].mean.rate();
  return own != 0 || !measured_ ? own : Of(measured_->alone, direction);
}

LinkMeter::Rates LinkMeter::rates() const {
  os::MutexLock lock(&mu_);
  Rates rates;
  rates.alone = {RateLocked(LinkDirection::kIn), RateLocked(LinkDirection::kOut)};
  if (measured_)
    rates.both = {rates.alone.in * RatioLocked(LinkDirection::kIn),
                  rates.alone.out * RatioLocked(LinkDirection::kOut)};
  return rates;
}

double LinkMeter::OwnRate(LinkDirection direction) const {
  os::MutexLock lock(&mu_);
  return sides_[static_cast<size_t>(direction)].mean.rate();
}

bool LinkMeter::busy(LinkDirection direction) const {
  os::MutexLock lock(&mu_);
  return sides_[static_cast<size_t>(direction)].under_way != 0;
}

std::optional<LinkMeter::Rates> LinkMeter::measured() const {
  os::MutexLock lock(&mu_);
  return measured_;
}

}  // namespace spillway::allocator
