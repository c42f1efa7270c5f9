#include "policy/model/plan_cursor.h"

#include <algorithm>
#include <utility>

namespace spillway::policy {
namespace {

using BlockPlace = PlanBlockView::Place;

constexpr size_t kMaxCopiesUnderWay = 2;
// An idle interval of unknown length is taken to be long enough from so many launches on.
constexpr LaunchIndex kLaunchesOfAGap = 8;
// Entries of a queue that one Poll considers, which bounds its time. Entries behind are wanted later; their
// turn comes as these start or go.
constexpr int kMaxScans = 128;
constexpr int kMaxStarts = 4;  // of one Poll: a start maps a block, and completions should not wait for many

PlanBlock BlockOf(TraceBlock block) { return static_cast<PlanBlock>(block); }
size_t QueueOf(PlanTier tier) { return static_cast<size_t>(tier); }

}  // namespace

// ---- Taking a plan over.

void PlanCursor::Reset(std::shared_ptr<const MigrationPlan> plan, LaunchIndex gpu) {
  plan_ = std::move(plan);
  gpu_ = gpu;
  evictions_ = copies_ = fetches_ = Turn();
  uses_.clear();
  starts_.clear();
  drops_waiting_.clear();
  copies_waiting_.clear();
  copies_under_way_.clear();
  disk_evictions_under_way_.clear();
  fetches_waiting_ = {};
  fetches_under_way_.clear();
  headroom_ = Headroom();
  bytes_wanted_ = 0;
  if (plan_ == nullptr) return;
  if (plan_->expected_bytes.size() == plan_->iteration_launches)
    headroom_ = Headroom(plan_->expected_bytes, plan_->budget_bytes, plan_->start, gpu);
  SortOps();
  PlaceTurns();
  if (!plan_->expected_bytes.empty()) AddWhatIsAway();
}

void PlanCursor::SortOps() {
  for (const PlanOp& op : plan_->ops) {
    if (op.kind == PlanOpKind::kDrop) evictions_.ops.push_back(op);
    // Right before its drop a copy is part of the eviction.
    if (op.kind == PlanOpKind::kCopyOut && op.needed != op.launch && !plan_->expected_bytes.empty())
      copies_.ops.push_back(op);
    if (op.kind == PlanOpKind::kFetch) fetches_.ops.push_back(op);
  }
  if (plan_->durations.size() == plan_->iteration_launches) {
    starts_.push_back(0);
    for (const Nanos duration : plan_->durations) starts_.push_back(starts_.back() + duration);
  }
  for (uint32_t position = 0; position < plan_->iteration_launches; ++position) {
    const ExpectedLaunch& launch = plan_->launches[position];
    for (uint32_t i = 0; i < launch.use_count; ++i)
      uses_[BlockOf(plan_->uses[launch.first_use + i])].push_back(position);
  }
}

// Places the turns at the host's place, or at the plan's start if that was less than an iteration ago: ops of
// launches made meanwhile may still be of use.
void PlanCursor::PlaceTurns() {
  LaunchIndex now = Now();
  if (now - plan_->start < plan_->iteration_launches) now = plan_->start;
  const uint32_t position = plan_->PositionOf(now);
  for (Turn* turn : {&evictions_, &copies_, &fetches_}) {
    std::ranges::stable_sort(turn->ops, {}, &PlanOp::launch);
    turn->iteration = (now - plan_->start) / plan_->iteration_launches;
    turn->at = static_cast<size_t>(std::ranges::lower_bound(turn->ops, position, {}, &PlanOp::launch) -
                                   turn->ops.begin());
    if (turn->at < turn->ops.size()) continue;
    turn->at = 0;
    ++turn->iteration;
  }
}

// A block that is away when the plan begins comes back for its next use, whatever made it leave.
void PlanCursor::AddWhatIsAway() {
  const LaunchIndex now = mover_.Launched();
  for (const auto& [block, positions] : uses_) {
    mover_.Visit(block, PlanTier::kHost, [&, id = block](const PlanBlockView& view) {
      if (view.place == BlockPlace::kAway || view.place == BlockPlace::kLeaving) {
        const LaunchIndex use = NextUse(id, now);
        WaitToFetch(view.tier, {use, id, use});
      }
      return PlanMove::kNothing;
    });
  }
}

// ---- Where the job is in the plan.

LaunchIndex PlanCursor::IndexOf(uint64_t iteration, uint32_t position) const {
  return plan_->start + iteration * plan_->iteration_launches + position;
}

// The launch at PlanOp::needed of the op whose turn it is.
LaunchIndex PlanCursor::NeededAt(const Turn& turn) const {
  return IndexOf(turn.iteration + (turn.op().needed < turn.op().launch ? 1 : 0), turn.op().needed);
}

LaunchIndex PlanCursor::Now() const {
  const LaunchIndex launched = mover_.Launched();
  return plan_ == nullptr ? launched : std::max(launched, plan_->start);
}

LaunchIndex PlanCursor::NextUse(PlanBlock block, LaunchIndex from) const {
  if (plan_ == nullptr) return kNever;
  const auto found = uses_.find(block);
  if (found == uses_.end()) return kNever;
  from = std::max(from, plan_->start);
  const uint64_t iteration = (from - plan_->start) / plan_->iteration_launches;
  const auto next = std::ranges::lower_bound(found->second, plan_->PositionOf(from));
  return next != found->second.end() ? IndexOf(iteration, *next)
                                     : IndexOf(iteration + 1, found->second.front());
}

// ---- Moving.

bool PlanCursor::Poll(LaunchIndex gpu, bool memory_wanted) {
  if (plan_ == nullptr) return false;
  gpu_ = gpu;
  bool progress = PollEvictions();
  progress |= PollCopies();
  QueueFetches();
  if (!memory_wanted) progress |= PollFetches();
  return progress;
}

bool PlanCursor::PollEvictions() {
  bool progress = false;
  const std::vector<Drop> waiting = std::exchange(drops_waiting_, {});
  for (const Drop& drop : waiting) progress |= TryDrop(drop);
  for (size_t tried = 0; tried < evictions_.ops.size(); ++tried, evictions_.Next()) {
    const PlanOp& op = evictions_.op();
    const LaunchIndex index = IndexOf(evictions_.iteration, op.launch);
    if (!mover_.Completed(index)) break;
    progress |= TryDrop({index, BlockOf(op.block), op.tier});
  }
  return progress;
}

bool PlanCursor::TryDrop(const Drop& drop) {
  const bool started = mover_.Visit(drop.block, drop.tier, [&](const PlanBlockView& view) {
    // A later launch has used it already: the host has run past the whole idle interval.
    if (!view.live || view.used > drop.used + 1) return PlanMove::kNothing;
    // It is too late: the block would be away for less than half of the interval.
    if (2 * (gpu_ - std::min(gpu_, drop.used)) > NextUse(drop.block, drop.used + 1) - drop.used)
      return PlanMove::kNothing;
    if (view.place == BlockPlace::kLeaving || view.place == BlockPlace::kDraining)
      drops_waiting_.push_back(drop);
    return view.place == BlockPlace::kOnGpu && view.may_leave ? PlanMove::kEvict : PlanMove::kNothing;
  });
  if (started && drop.tier == PlanTier::kDisk) disk_evictions_under_way_.push_back(drop);
  return started;
}

// Copies out blocks that stay for now, as their content becomes final. Those to the disk wait for evictions
// to it: launches need the memory of those, and a copy queue takes transfers in the order in which they come.
// To the host a transfer is short, and a copy that waits is late for the block's own drop.
bool PlanCursor::PollCopies() {
  for (size_t tried = 0; tried < copies_.ops.size(); ++tried, copies_.Next()) {
    if (IndexOf(copies_.iteration, copies_.op().launch) >= gpu_) break;
    copies_waiting_.insert({NeededAt(copies_), BlockOf(copies_.op().block), copies_.op().tier});
  }
  ScanCopiesUnderWay();
  bool progress = false;
  int scans = 0;
  for (auto it = copies_waiting_.begin();
       it != copies_waiting_.end() && copies_under_way_.size() < kMaxCopiesUnderWay && scans < kMaxScans;
       ++scans) {
    if (it->wanted <= gpu_) {  // its drop has come and copies it
      it = copies_waiting_.erase(it);
      continue;
    }
    bool stays = false;
    const bool started = mover_.Visit(it->block, it->tier, [&](const PlanBlockView& view) {
      if (!view.live) return PlanMove::kNothing;
      stays = view.place != BlockPlace::kOnGpu || !view.may_copy ||
              (it->tier == PlanTier::kDisk && !disk_evictions_under_way_.empty()) ||
              !LongEnough(*it, view.copy_bytes);
      return stays ? PlanMove::kNothing : PlanMove::kCopyOut;
    });
    if (started) copies_under_way_.push_back(*it);
    progress |= started;
    it = stays ? std::next(it) : copies_waiting_.erase(it);
  }
  return progress;
}

// Forgets the evictions to the disk and the copies that have ended. A copy that a launch took back waits for
// the next idle interval.
void PlanCursor::ScanCopiesUnderWay() {
  std::erase_if(disk_evictions_under_way_, [this](const Drop& eviction) {
    bool ended = false;
    mover_.Visit(eviction.block, eviction.tier, [&](const PlanBlockView& view) {
      ended = view.place != BlockPlace::kLeaving;
      return PlanMove::kNothing;
    });
    return ended;
  });
  std::erase_if(copies_under_way_, [this](const Copy& copy) {
    bool ended = false;
    mover_.Visit(copy.block, copy.tier, [&](const PlanBlockView& view) {
      ended = view.place != BlockPlace::kLeaving && view.place != BlockPlace::kDraining;
      if (view.place == BlockPlace::kOnGpu && !view.copied) copies_waiting_.insert(copy);
      return PlanMove::kNothing;
    });
    return ended;
  });
}

PlanCursor::Gap PlanCursor::GapBefore(PlanBlock block) const {
  const LaunchIndex now = Now();
  const LaunchIndex use = NextUse(block, now);
  if (use == kNever) return {kNever, 0};
  if (starts_.empty()) return {use - now, 0};
  const auto iterations = static_cast<Nanos>((use - plan_->start) / plan_->iteration_launches) -
                          static_cast<Nanos>((now - plan_->start) / plan_->iteration_launches);
  const Nanos nanos =
      iterations * starts_.back() + starts_[plan_->PositionOf(use)] - starts_[plan_->PositionOf(now)];
  return {use - now, nanos};
}

// A launch that names the block takes a copy under way back: it must fit between two uses.
bool PlanCursor::LongEnough(const Copy& copy, Bytes bytes) const {
  const Gap gap = GapBefore(copy.block);
  const double rate = mover_.RateOut(copy.tier);
  if (gap.nanos == 0 || rate == 0) return gap.launches >= kLaunchesOfAGap;
  return static_cast<double>(gap.nanos) > 1.5 * (static_cast<double>(bytes) / rate * 1e9);
}

// Queues the fetches whose earliest start has come.
void PlanCursor::QueueFetches() {
  for (size_t tried = 0; tried < fetches_.ops.size(); ++tried, fetches_.Next()) {
    if (IndexOf(fetches_.iteration, fetches_.op().launch) > std::max(gpu_, plan_->start)) break;
    const LaunchIndex due = NeededAt(fetches_);
    // The fetch may be due before the block's use. A late fetch is better than none until the launch of that
    // use has come.
    const PlanBlock block = BlockOf(fetches_.op().block);
    const LaunchIndex use = NextUse(block, due);
    if (use != kNever) WaitToFetch(fetches_.op().tier, {due, block, use});
  }
}

void PlanCursor::RecordUnplanned(PlanBlock block, Bytes bytes, LaunchIndex gpu) {
  if (plan_ == nullptr) return;
  const LaunchIndex use = NextUse(block, mover_.Launched());
  if (use == kNever) return;
  headroom_.Add(gpu, use, -static_cast<int64_t>(bytes));
  if (headroom_.known()) WaitToFetch(PlanTier::kHost, {use, block, use});
}

void PlanCursor::WaitToFetch(PlanTier tier, const Fetch& fetch) {
  fetches_waiting_[QueueOf(tier)].insert(fetch);
}

// Starts fetches in the order of need over both tiers, as long as their queues may start another. A block
// that turns out to lie on the other tier changes queues.
bool PlanCursor::PollFetches() {
  headroom_.MoveTo(gpu_);
  bytes_wanted_ = 0;
  bool progress = ScanFetchesUnderWay();
  Blocked blocked = {IsBusy(PlanTier::kHost), IsBusy(PlanTier::kDisk)};
  const LaunchIndex host = mover_.Launched();
  std::array next = {fetches_waiting_[0].begin(), fetches_waiting_[1].begin()};
  const auto may = [&](size_t tier) { return !blocked[tier] && next[tier] != fetches_waiting_[tier].end(); };
  for (int scans = 0, started = 0; scans < kMaxScans && started < kMaxStarts && (may(0) || may(1));) {
    const size_t tier = !may(1) || (may(0) && *next[0] < *next[1]) ? 0 : 1;
    const Fetch fetch = *next[tier];
    if (fetch.use < host) {  // its use is over
      next[tier] = fetches_waiting_[tier].erase(next[tier]);
      continue;
    }
    ++scans;
    auto seen = static_cast<PlanTier>(tier);
    const Start result = TryFetch(fetch, &blocked, &seen);
    const bool elsewhere = QueueOf(seen) != tier;
    if (result != Start::kStarted && !elsewhere) {
      ++next[tier];
      continue;
    }
    next[tier] = fetches_waiting_[tier].erase(next[tier]);
    if (result != Start::kStarted) WaitToFetch(seen, fetch);
    started += result == Start::kStarted ? 1 : 0;
    progress |= result == Start::kStarted;
  }
  return progress;
}

// Forgets the fetches that have ended. One that was taken back does not count as on the GPU any more, and
// waits for its turn again.
bool PlanCursor::ScanFetchesUnderWay() {
  return std::erase_if(fetches_under_way_, [this](const FetchUnderWay& one) {
           bool ended = false;
           mover_.Visit(one.fetch.block, one.tier, [&](const PlanBlockView& view) {
             ended = view.place != BlockPlace::kArriving;
             if (view.place == BlockPlace::kAway) {
               headroom_.Add(std::max(one.from, gpu_), one.fetch.due, -static_cast<int64_t>(one.bytes));
               WaitToFetch(view.tier, one.fetch);
             }
             return PlanMove::kNothing;
           });
           return ended;
         }) != 0;
}

// The tier should have work until the next Poll, but no more: a fetch takes its memory at its start.
bool PlanCursor::IsBusy(PlanTier tier) const {
  size_t fetches = 0;
  Bytes bytes = 0;
  for (const FetchUnderWay& one : fetches_under_way_) {
    if (one.tier != tier) continue;
    ++fetches;
    bytes += one.bytes;
  }
  return mover_.IsBusy(tier, fetches, bytes);
}

// `seen`: the tier on which the block lies, if it is away.
PlanCursor::Start PlanCursor::TryFetch(const Fetch& fetch, Blocked* blocked, PlanTier* seen) {
  Start result = Start::kNothingToDo;
  Bytes bytes = 0;
  const bool started = mover_.Visit(fetch.block, *seen, [&](const PlanBlockView& view) {
    // The block is on its way, on the GPU, freed, or may not return yet: the fetch stays in the queue until
    // its use is over.
    if (view.place != BlockPlace::kAway || !view.may_return) return PlanMove::kNothing;
    *seen = view.tier;
    bytes = view.bytes;
    if ((*blocked)[QueueOf(*seen)]) return PlanMove::kNothing;
    const bool fits = fetch.due <= mover_.Launched() || headroom_.Fits(gpu_, fetch.due, bytes);
    const bool free = bytes <= view.free_bytes;
    if (fits && !free) bytes_wanted_ = std::max(bytes_wanted_, bytes);
    if (!fits || !free) {
      result = Start::kMustWait;
      return PlanMove::kNothing;
    }
    return PlanMove::kFetch;
  });
  if (started) {
    result = Start::kStarted;
    fetches_under_way_.push_back({fetch, gpu_, bytes, *seen});
    headroom_.Add(gpu_, fetch.due, static_cast<int64_t>(bytes));
    (*blocked)[QueueOf(*seen)] = IsBusy(*seen);
  } else if (result == Start::kMustWait) {
    (*blocked)[QueueOf(*seen)] = true;
  }
  return result;
}

}  // namespace spillway::policy
