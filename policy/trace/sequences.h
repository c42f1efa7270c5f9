// KnownPaths: a bounded library of the steps that a job has gone through, each a cycle of launch signatures, and where
// among them the job is now, judged by its latest launches. What a path is good for (its plan) is kept by the caller
// under the path's id. Finds no paths itself (sequence_tracker.h) and looks at signatures only.

#ifndef SPILLWAY_POLICY_TRACE_SEQUENCES_H_
#define SPILLWAY_POLICY_TRACE_SEQUENCES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "policy/trace/units.h"

namespace spillway::policy {

using PathId = uint32_t;  // of one path for ever; 0: none
inline constexpr PathId kNoPath = 0;

struct PathOptions {
  size_t most_paths = 32;
  size_t most_launches = size_t{1} << 19;  // of all paths together; a longer path is not taken in
  // How many of the latest launches must fit a place: one whose latest launch stands nowhere else; one that fits
  // further back than all others; one of several that fit equally well.
  uint32_t alone = 2;
  uint32_t clear = 8;
  uint32_t tied = 16;
};

// A place on a path, that of a launch.
struct PathPlace {
  PathId path = kNoPath;
  uint32_t position = 0;
  uint32_t run =
      0;  // so many of the latest launches fit it; no more than KnownPaths::kLongestRun are counted
  bool clear = false;  // no other place fits as far back
};

class KnownPaths {
 public:
  static constexpr uint32_t kLongestRun = 4096;

  KnownPaths() : KnownPaths(PathOptions()) {}
  explicit KnownPaths(const PathOptions& options);

  // A cycle of launches, from where a step begins if that is known. Known already, in any rotation: its id, and what
  // is kept has the rotation it had: `position` says where signatures[0] stands in it. To make room, the paths go that were
  // followed least lately, those never followed for a whole period first when they are many. kNoPath: too long.
  struct Added {
    PathId path = kNoPath;
    uint32_t position = 0;
    bool is_new = false;
  };
  Added Add(std::span<const uint64_t> signatures);
  bool Contains(PathId path) const { return paths_.contains(path); }
  // The cycle's signatures. `path` must be there.
  std::span<const uint64_t> SignaturesOf(PathId path) const { return paths_.at(path).signatures; }
  size_t size() const { return paths_.size(); }

  // The job's next launch. Each launch, on a path or not; constant time.
  void Note(uint64_t signature);
  // The launches before the next one are not known.
  void ForgetLatest() { noted_ = 0; }
  // Where the job stands: the place of the launch noted last, as soon as there is no doubt, or the best guess when the
  // doubt has lasted. Looks at up to kMostPlaces places.
  std::optional<PathPlace> Recognise() const;

  // The job has followed the path for so many launches now and is on it still.
  void NoteFollowed(PathId path, uint64_t launches);
  // It left the path, after so many launches, where `position` was expected: it may come back close by, a launch more or
  // less. A path that is left soon each time is recognised by longer runs only.
  void NoteLeft(PathId path, uint32_t position, uint64_t launches);
  // It came to the path from elsewhere, and this was the first launch that fitted: the likeliest way in next time.
  void NoteEntry(PathId path, uint32_t position);

 private:
  struct Place {
    PathId path = kNoPath;
    uint32_t position = 0;
  };
  struct Path {
    std::vector<uint64_t> signatures;
    uint64_t followed_at = 0;  // larger: later
    bool proven = false;       // followed for a whole period
    uint32_t entry = 0;
    uint32_t least_run = 0;  // shorter ones are not believed any more
  };
  // A signature that stands in more places than these says nothing.
  static constexpr size_t kMostPlaces = 64;
  // How many launches after it was left a path is looked for close to where it was, and how close.
  static constexpr uint64_t kSoon = 64;
  static constexpr uint32_t kClose = 16;

  uint32_t RunAt(const Place& place, uint32_t most) const;
  bool IsNearWhereLeft(const PathPlace& place) const;
  bool BeganAtEntry(const PathPlace& place) const;
  PathPlace Preferred(const std::vector<PathPlace>& tied) const;
  Added Find(std::span<const uint64_t> signatures) const;
  std::optional<PathPlace> Judge(const std::vector<PathPlace>& best, size_t places) const;
  void MakeRoom(size_t launches);
  void Remove(PathId path);

  PathOptions options_;
  std::map<PathId, Path> paths_;
  std::unordered_map<uint64_t, std::vector<Place>> places_;  // of each signature
  size_t launches_ = 0;                                      // of all paths
  PathId last_id_ = kNoPath;
  uint64_t clock_ = 0;  // counts what makes a path the latest

  std::vector<uint64_t> latest_;  // ring of the last kLongestRun launches
  uint64_t noted_ = 0;            // launches in a row that are known
  PathPlace left_;                // where a path was left; run unused
  uint64_t left_at_ = 0;          // all_noted_ then
  uint64_t all_noted_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_SEQUENCES_H_
