#include "policy/simulator/shared_link.h"

#include <algorithm>
#include <cmath>

namespace spillway::policy {
namespace {

constexpr double kSame = 1e-9;  // rates so near to each other are one

bool Above(double rate, double other) { return rate > other * (1 + kSame); }

}  // namespace

SharedLink::SharedLink(const Machine& machine, size_t tiers)
    : machine_(machine),
      tiers_(tiers),
      unit_(machine.piece_bytes != 0 ? machine.piece_bytes : kUnitOfWhole),
      copies_(2 * tiers),
      wanted_(2 * tiers, 0) {}

void SharedLink::ForgetWanted() { std::ranges::fill(wanted_, 0); }

// Divides `part` of a direction's rate among its copies. The host's copy becomes slower first, down to half
// of that; then the drives' copies do, all by the same factor.
void SharedLink::ShareDirection(bool out, double part, std::vector<double>* rates) const {
  const Queue host = out ? 0 : tiers_;
  const double all = part * Alone(host);
  double drives = 0;
  for (Queue queue = host + 1; queue < host + tiers_; ++queue) drives += (*rates)[queue];
  if (!Above((*rates)[host] + drives, all)) return;
  const double left = std::min(drives, std::max(all / 2, all - (*rates)[host]));
  for (Queue queue = host + 1; queue < host + tiers_; ++queue) {
    if (drives > 0) (*rates)[queue] *= left / drives;
  }
  (*rates)[host] = all - left;
}

std::vector<double> SharedLink::RightRates(bool wanted) const {
  std::vector<double> rates(copies_.size(), 0);
  LinkRates sum;
  for (Queue queue = 0; queue < copies_.size(); ++queue) {
    rates[queue] = copies_[queue].active ? copies_[queue].asked : wanted ? wanted_[queue] : 0;
    (IsOut(queue) ? sum.out : sum.in) += rates[queue] / Alone(queue);
  }
  const LinkRates parts = LinkParts(machine_, sum);
  ShareDirection(/*out=*/true, parts.out, &rates);
  ShareDirection(/*out=*/false, parts.in, &rates);
  return rates;
}

// A copy may begin if no copy under way is faster than is right beside it. Copies that have begun at this
// very time do not count: Begin can still lower their rates.
bool SharedLink::MayBegin(Queue queue, double rate, Nanos now) {
  std::vector<double> kept(copies_.size(), 0);
  kept.swap(wanted_);
  wanted_[queue] = rate;
  const std::vector<double> right = RightRates(/*wanted=*/true);
  kept.swap(wanted_);
  bool may = true;
  for (Queue other = 0; other < copies_.size(); ++other) {
    const Copy& copy = copies_[other];
    may &= !copy.active || copy.start == now || !Above(copy.rate, right[other]);
  }
  if (!may) wanted_[queue] = rate;
  return may;
}

void SharedLink::Begin(Queue queue, double rate, Bytes bytes, Nanos latency, Nanos now) {
  copies_[queue] = {.active = true, .asked = rate, .bytes = bytes, .start = now, .latency = latency};
  wanted_[queue] = 0;
  const std::vector<double> right = RightRates(/*wanted=*/false);
  for (Queue other = 0; other < copies_.size(); ++other) {
    Copy& copy = copies_[other];
    if (copy.active && copy.start == now && Above(copy.rate, right[other])) SetRate(&copy, right[other]);
  }
  SetRate(&copies_[queue], right[queue]);
}

void SharedLink::Arrange(Nanos now) {
  const std::vector<double> right = RightRates(/*wanted=*/true);
  // Copies that become slower go first: the others may need what they give up.
  for (const bool slower : {true, false}) {
    for (Queue queue = 0; queue < copies_.size(); ++queue) {
      Copy& copy = copies_[queue];
      if (!copy.active) continue;
      if (slower ? !Above(copy.rate, right[queue]) : !Above(right[queue], copy.rate)) {
        if (slower) copy.end = EndOf(copy, copy.bytes - copy.done);
        continue;
      }
      if (copy.start != now) {
        copy.end = EndOf(copy, BytesToUnit(copy, now));
      } else if (slower || Possible(queue, right[queue])) {
        SetRate(&copy, right[queue]);
      }
    }
  }
}

bool SharedLink::Possible(Queue queue, double rate) const {
  LinkRates sum;
  for (Queue other = 0; other < copies_.size(); ++other) {
    const Copy& copy = copies_[other];
    const double its = other == queue ? rate : copy.active ? copy.rate : 0;
    (IsOut(other) ? sum.out : sum.in) += its / Alone(other);
  }
  const LinkRates parts = LinkParts(machine_, sum);
  return !Above(sum.in, parts.in) && !Above(sum.out, parts.out);
}

void SharedLink::SetRate(Copy* copy, double rate) const {
  copy->rate = rate;
  copy->end = EndOf(*copy, copy->bytes - copy->done);
}

Nanos SharedLink::EndOf(const Copy& copy, Bytes bytes) const {
  return copy.start + ToTicks(static_cast<double>(bytes) / copy.rate * kNanosPerSecond +
                              static_cast<double>(copy.latency));
}

// The bytes of the segment up to the end of the unit that is under way now.
Bytes SharedLink::BytesToUnit(const Copy& copy, Nanos now) const {
  const Nanos moving = std::max<Nanos>(0, now - copy.start - copy.latency);
  const double units = static_cast<double>(moving) / kNanosPerSecond * copy.rate / static_cast<double>(unit_);
  return std::min((static_cast<Bytes>(units) + 1) * unit_, copy.bytes - copy.done);
}

void SharedLink::Shorten(Queue queue, Nanos now) {
  Copy& copy = copies_[queue];
  copy.bytes = copy.done + BytesToUnit(copy, now);
  copy.end = EndOf(copy, copy.bytes - copy.done);
}

SharedLink::Segment SharedLink::Rest(Queue queue) const {
  const Copy& copy = copies_[queue];
  return {copy.done, copy.bytes, copy.start, EndOf(copy, copy.bytes - copy.done), true};
}

SharedLink::Segment SharedLink::EndSegment(Queue queue, Nanos now) {
  Copy& copy = copies_[queue];
  Segment segment = Rest(queue);
  if (segment.end <= now) {
    copy.active = false;
    return segment;
  }
  // The segment ends with a unit; the time since its start tells which.
  const double moved = static_cast<double>(now - copy.start - copy.latency) / kNanosPerSecond * copy.rate;
  const Bytes units = static_cast<Bytes>(std::floor(moved / static_cast<double>(unit_) + 0.5));
  segment.last = std::min(copy.bytes, copy.done + units * unit_);
  segment.end = now;
  segment.ends_copy = false;
  copy.done = segment.last;
  copy.start = now;
  copy.latency = 0;
  copy.end = EndOf(copy, copy.bytes - copy.done);
  return segment;
}

}  // namespace spillway::policy
