#include "policy/trace/sequences.h"

#include <algorithm>
#include <tuple>

namespace spillway::policy {

KnownPaths::KnownPaths(const PathOptions& options) : options_(options), latest_(kLongestRun) {}

KnownPaths::Added KnownPaths::Add(std::span<const uint64_t> signatures) {
  if (signatures.empty() || signatures.size() > options_.most_launches) return {};
  if (const Added known = Find(signatures); known.path != kNoPath) return known;
  MakeRoom(signatures.size());
  const PathId id = ++last_id_;
  Path& path = paths_[id];
  path.signatures.assign(signatures.begin(), signatures.end());
  path.followed_at = ++clock_;
  for (uint32_t position = 0; position < signatures.size(); ++position) {
    places_[signatures[position]].push_back({id, position});
  }
  launches_ += signatures.size();
  return {id, 0, true};
}

// The path that is this cycle, in whatever rotation.
KnownPaths::Added KnownPaths::Find(std::span<const uint64_t> signatures) const {
  const auto places = places_.find(signatures.front());
  if (places == places_.end()) return {};
  for (const Place& place : places->second) {
    const std::span<const uint64_t> known(paths_.at(place.path).signatures);
    if (known.size() != signatures.size()) continue;
    const size_t tail = known.size() - place.position;
    if (std::ranges::equal(known.subspan(place.position), signatures.first(tail)) &&
        std::ranges::equal(known.first(place.position), signatures.subspan(tail))) {
      return {place.path, place.position, false};
    }
  }
  return {};
}

void KnownPaths::MakeRoom(size_t launches) {
  while (!paths_.empty() &&
         (paths_.size() >= options_.most_paths || launches_ + launches > options_.most_launches)) {
    const auto unproven = std::ranges::count_if(paths_, [](const auto& one) { return !one.second.proven; });
    const bool spare_proven = 2 * static_cast<size_t>(unproven) >= paths_.size();
    const auto key = [&](const auto& one) {
      return std::tuple(spare_proven && one.second.proven, one.second.followed_at);
    };
    Remove(std::ranges::min_element(paths_, {}, key)->first);
  }
}

void KnownPaths::Remove(PathId id) {
  const auto path = paths_.find(id);
  for (const uint64_t signature : path->second.signatures) {
    const auto places = places_.find(signature);
    if (places == places_.end()) continue;  // it came twice in the path
    std::erase_if(places->second, [id](const Place& place) { return place.path == id; });
    if (places->second.empty()) places_.erase(places);
  }
  launches_ -= path->second.signatures.size();
  paths_.erase(path);
}

void KnownPaths::Note(uint64_t signature) {
  latest_[all_noted_ % kLongestRun] = signature;
  ++all_noted_;
  ++noted_;
}

// How many of the latest launches, up to `most`, are those up to the place.
uint32_t KnownPaths::RunAt(const Place& place, uint32_t most) const {
  const std::vector<uint64_t>& path = paths_.at(place.path).signatures;
  const auto known = static_cast<uint32_t>(std::min<uint64_t>({noted_, most, kLongestRun}));
  size_t position = place.position;
  for (uint32_t run = 0; run < known; ++run) {
    if (latest_[(all_noted_ - 1 - run) % kLongestRun] != path[position]) return run;
    position = position == 0 ? path.size() - 1 : position - 1;
  }
  return known;
}

std::optional<PathPlace> KnownPaths::Recognise() const {
  if (noted_ == 0) return std::nullopt;
  const auto found = places_.find(latest_[(all_noted_ - 1) % kLongestRun]);
  if (found == places_.end() || found->second.size() > kMostPlaces) return std::nullopt;
  // A short look first: most places end there.
  const uint32_t shortest = std::max(options_.clear, options_.tied);
  std::vector<PathPlace> best;
  for (const uint32_t most : {shortest, kLongestRun}) {
    best.clear();
    for (const Place& place : found->second) {
      const PathPlace one{place.path, place.position, RunAt(place, most), false};
      if (best.empty() || one.run > best.front().run) best.clear();
      if (best.empty() || one.run == best.front().run) best.push_back(one);
    }
    if (best.size() == 1 || best.front().run < most) break;
  }
  best.front().clear = best.size() == 1;
  std::optional<PathPlace> place = Judge(best, found->second.size());
  if (place) place->run = RunAt({place->path, place->position}, kLongestRun);
  if (place && place->run < std::min(paths_.at(place->path).least_run, kLongestRun)) return std::nullopt;
  return place;
}

// `best` fit equally far back, further than all others of `places`.
std::optional<PathPlace> KnownPaths::Judge(const std::vector<PathPlace>& best, size_t places) const {
  const uint32_t run = best.front().run;
  if (run < options_.alone) return std::nullopt;
  if (places == 1) return best.front();
  for (const PathPlace& one : best) {
    if (IsNearWhereLeft(one)) return one;
  }
  if (best.size() == 1) return run >= options_.clear ? std::optional(best.front()) : std::nullopt;
  return run >= options_.tied ? std::optional(Preferred(best)) : std::nullopt;
}

bool KnownPaths::IsNearWhereLeft(const PathPlace& place) const {
  if (place.path != left_.path || all_noted_ - left_at_ > kSoon) return false;
  const auto period = static_cast<uint32_t>(paths_.at(place.path).signatures.size());
  const uint64_t since = all_noted_ - left_at_;
  const auto expected = static_cast<uint32_t>((left_.position + since - 1) % period);
  const uint32_t ahead = (place.position + period - expected) % period;
  return std::min(ahead, period - ahead) <= std::min(kClose, period / 4);
}

bool KnownPaths::BeganAtEntry(const PathPlace& place) const {
  const Path& path = paths_.at(place.path);
  const size_t period = path.signatures.size();
  return (path.entry + place.run - 1) % period == place.position;
}

PathPlace KnownPaths::Preferred(const std::vector<PathPlace>& tied) const {
  return *std::ranges::max_element(tied, {}, [this](const PathPlace& place) {
    return std::tuple(BeganAtEntry(place), paths_.at(place.path).followed_at);
  });
}

void KnownPaths::NoteFollowed(PathId id, uint64_t launches) {
  const auto path = paths_.find(id);
  if (path == paths_.end()) return;
  path->second.followed_at = ++clock_;
  if (launches < path->second.signatures.size()) return;
  path->second.proven = true;
  path->second.least_run = 0;
}

void KnownPaths::NoteLeft(PathId id, uint32_t position, uint64_t launches) {
  left_ = {id, position, 0, false};
  left_at_ = all_noted_;
  const auto path = paths_.find(id);
  if (path == paths_.end()) return;
  uint32_t& least = path->second.least_run;
  const size_t period = path->second.signatures.size();
  if (launches >= period) least = 0;
  if (launches < period / 4) least = std::min(kLongestRun, std::max(2 * least, options_.clear));
}

void KnownPaths::NoteEntry(PathId id, uint32_t position) {
  const auto path = paths_.find(id);
  if (path != paths_.end()) path->second.entry = position;
}

}  // namespace spillway::policy
