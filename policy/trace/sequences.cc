#include "policy/trace/sequences.h"

#include <algorithm>
#include <tuple>

namespace spillway::policy {

KnownSequences::KnownSequences(const SequenceOptions& options) : options_(options), latest_(kLongestRun) {}

void KnownSequences::Clear() {
  const SequenceId last = last_id_;
  *this = KnownSequences(options_);
  last_id_ = last;
}

KnownSequences::Added KnownSequences::Add(std::span<const uint64_t> signatures) {
  if (signatures.empty() || signatures.size() > options_.most_launches) return {};
  if (const Added known = Find(signatures); known.sequence != kNoSequence) return known;
  ForgetUntilFits(signatures.size());
  const SequenceId id = ++last_id_;
  Sequence& sequence = sequences_[id];
  sequence.signatures.assign(signatures.begin(), signatures.end());
  sequence.followed_at = ++clock_;
  for (uint32_t position = 0; position < signatures.size(); ++position) {
    places_[signatures[position]].push_back({id, position});
  }
  launches_ += signatures.size();
  return {id, 0, true};
}

// Returns the sequence that has these launches, in any rotation.
KnownSequences::Added KnownSequences::Find(std::span<const uint64_t> signatures) const {
  const auto places = places_.find(signatures.front());
  if (places == places_.end()) return {};
  for (const Place& place : places->second) {
    const std::span<const uint64_t> known(sequences_.at(place.sequence).signatures);
    if (known.size() != signatures.size()) continue;
    const size_t tail = known.size() - place.position;
    if (std::ranges::equal(known.subspan(place.position), signatures.first(tail)) &&
        std::ranges::equal(known.first(place.position), signatures.subspan(tail))) {
      return {place.sequence, place.position, false};
    }
  }
  return {};
}

void KnownSequences::ForgetUntilFits(size_t launches) {
  while (!sequences_.empty() &&
         (sequences_.size() >= options_.most_sequences || launches_ + launches > options_.most_launches)) {
    const auto unproven =
        std::ranges::count_if(sequences_, [](const auto& one) { return !one.second.proven; });
    const bool spare_proven = 2 * static_cast<size_t>(unproven) >= sequences_.size();
    const auto key = [&](const auto& one) {
      return std::tuple(spare_proven && one.second.proven, one.second.followed_at);
    };
    Remove(std::ranges::min_element(sequences_, {}, key)->first);
  }
}

void KnownSequences::Remove(SequenceId id) {
  const auto sequence = sequences_.find(id);
  for (const uint64_t signature : sequence->second.signatures) {
    const auto places = places_.find(signature);
    if (places == places_.end()) continue;  // it came twice in the sequence
    std::erase_if(places->second, [id](const Place& place) { return place.sequence == id; });
    if (places->second.empty()) places_.erase(places);
  }
  launches_ -= sequence->second.signatures.size();
  sequences_.erase(sequence);
}

void KnownSequences::Record(uint64_t signature) {
  latest_[all_recorded_ % kLongestRun] = signature;
  ++all_recorded_;
  ++recorded_;
}

// Returns how many of the latest launches, up to `most`, are those up to the place.
uint32_t KnownSequences::RunAt(const Place& place, uint32_t most) const {
  const std::vector<uint64_t>& sequence = sequences_.at(place.sequence).signatures;
  const auto known = static_cast<uint32_t>(std::min<uint64_t>({recorded_, most, kLongestRun}));
  size_t position = place.position;
  for (uint32_t run = 0; run < known; ++run) {
    if (latest_[(all_recorded_ - 1 - run) % kLongestRun] != sequence[position]) return run;
    position = position == 0 ? sequence.size() - 1 : position - 1;
  }
  return known;
}

std::optional<SequencePlace> KnownSequences::Recognize() const {
  if (recorded_ == 0) return std::nullopt;
  const auto found = places_.find(latest_[(all_recorded_ - 1) % kLongestRun]);
  if (found == places_.end() || found->second.size() > kMaxPlaces) return std::nullopt;
  // The first comparison is a short one, which excludes most places.
  const uint32_t shortest = std::max(options_.clear, options_.tied);
  std::vector<SequencePlace> best;
  for (const uint32_t most : {shortest, kLongestRun}) {
    best.clear();
    for (const Place& place : found->second) {
      const SequencePlace one{place.sequence, place.position, RunAt(place, most), false};
      if (best.empty() || one.run > best.front().run) best.clear();
      if (best.empty() || one.run == best.front().run) best.push_back(one);
    }
    if (best.size() == 1 || best.front().run < most) break;
  }
  best.front().clear = best.size() == 1;
  std::optional<SequencePlace> place = Judge(best, found->second.size());
  if (place) place->run = RunAt({place->sequence, place->position}, kLongestRun);
  if (place && place->run < std::min(sequences_.at(place->sequence).least_run, kLongestRun))
    return std::nullopt;
  return place;
}

// `best` fit equally far back, further than all others of `places`.
std::optional<SequencePlace> KnownSequences::Judge(const std::vector<SequencePlace>& best,
                                                   size_t places) const {
  const uint32_t run = best.front().run;
  if (run < options_.alone) return std::nullopt;
  if (places == 1) return best.front();
  for (const SequencePlace& one : best) {
    if (IsNearWhereLeft(one)) return one;
  }
  if (best.size() == 1) return run >= options_.clear ? std::optional(best.front()) : std::nullopt;
  return run >= options_.tied ? std::optional(Preferred(best)) : std::nullopt;
}

bool KnownSequences::IsNearWhereLeft(const SequencePlace& place) const {
  if (place.sequence != left_.sequence || all_recorded_ - left_at_ > kSoon) return false;
  const auto iteration_launches = static_cast<uint32_t>(sequences_.at(place.sequence).signatures.size());
  const uint64_t since = all_recorded_ - left_at_;
  const auto expected = static_cast<uint32_t>((left_.position + since - 1) % iteration_launches);
  const uint32_t ahead = (place.position + iteration_launches - expected) % iteration_launches;
  return std::min(ahead, iteration_launches - ahead) <= std::min(kClose, iteration_launches / 4);
}

bool KnownSequences::BeganAtEntry(const SequencePlace& place) const {
  const Sequence& sequence = sequences_.at(place.sequence);
  const size_t iteration_launches = sequence.signatures.size();
  return (sequence.entry + place.run - 1) % iteration_launches == place.position;
}

SequencePlace KnownSequences::Preferred(const std::vector<SequencePlace>& tied) const {
  return *std::ranges::max_element(tied, {}, [this](const SequencePlace& place) {
    return std::tuple(BeganAtEntry(place), sequences_.at(place.sequence).followed_at);
  });
}

void KnownSequences::RecordFollowed(SequenceId id, uint64_t launches) {
  const auto sequence = sequences_.find(id);
  if (sequence == sequences_.end()) return;
  sequence->second.followed_at = ++clock_;
  if (launches < sequence->second.signatures.size()) return;
  sequence->second.proven = true;
  sequence->second.least_run = 0;
}

void KnownSequences::RecordLeft(SequenceId id, uint32_t position, uint64_t launches) {
  left_ = {id, position, 0, false};
  left_at_ = all_recorded_;
  const auto sequence = sequences_.find(id);
  if (sequence == sequences_.end()) return;
  uint32_t& least = sequence->second.least_run;
  const size_t iteration_launches = sequence->second.signatures.size();
  if (launches >= iteration_launches) least = 0;
  if (launches < iteration_launches / 4) least = std::min(kLongestRun, std::max(2 * least, options_.clear));
}

void KnownSequences::RecordEntry(SequenceId id, uint32_t position) {
  const auto sequence = sequences_.find(id);
  if (sequence != sequences_.end()) sequence->second.entry = position;
}

}  // namespace spillway::policy
