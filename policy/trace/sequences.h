// KnownSequences: a bounded library of the sequences that a job repeats, each the launch signatures of one
// iteration, and the job's present place among them, judged by its latest launches. A sequence is circular:
// its first launch comes after its last. SequenceTracker adds sequences and reports launches; the caller
// keeps what belongs to a sequence (its plan) under the sequence's id. Only signatures are compared. One
// thread; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_SEQUENCES_H_
#define SPILLWAY_POLICY_TRACE_SEQUENCES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

// Names one sequence; never given to another. 0: none.
using SequenceId = uint32_t;
inline constexpr SequenceId kNoSequence = 0;

struct SequenceOptions {
  size_t most_sequences = 32;
  size_t most_launches = size_t{1} << 19;  // of all sequences together; a longer sequence is not added
  // The number of latest launches that must fit a place before it is believed:
  uint32_t alone = 2;  // if the latest launch stands nowhere else
  uint32_t clear = 8;  // if it fits further back than all other places
  uint32_t tied = 16;  // if several places fit equally well
};

// The place of a launch in a sequence.
struct SequencePlace {
  SequenceId sequence = kNoSequence;
  uint32_t position = 0;
  uint32_t run = 0;    // number of latest launches that fit it, counted up to KnownSequences::kLongestRun
  bool clear = false;  // no other place fits as far back
};

class KnownSequences {
 public:
  static constexpr uint32_t kLongestRun = 4096;

  KnownSequences() : KnownSequences(SequenceOptions()) {}
  explicit KnownSequences(const SequenceOptions& options);

  // Adds the launches of one iteration, from its beginning if that is known. A sequence that is known
  // already, in any rotation, keeps its id and its rotation; `position` is the place of signatures[0] in it.
  // Sequences are forgotten until the new one fits: those followed least recently, and first, if they are
  // many, those never followed for a whole iteration. kNoSequence: it is too long.
  struct Added {
    SequenceId sequence = kNoSequence;
    uint32_t position = 0;
    bool is_new = false;
  };
  Added Add(std::span<const uint64_t> signatures);
  bool Contains(SequenceId sequence) const { return sequences_.contains(sequence); }
  // `sequence` must be known.
  std::span<const uint64_t> SignaturesOf(SequenceId sequence) const {
    return sequences_.at(sequence).signatures;
  }
  size_t size() const { return sequences_.size(); }
  // Forgets all sequences and launches. Ids go on: none is given to another sequence.
  void Clear();

  // Records the job's next launch. Must be called for each launch, in a known sequence or not. Constant time.
  void Record(uint64_t signature);
  // Records that the launches before the next one are not known.
  void ForgetLatest() { recorded_ = 0; }
  // Returns the place of the launch recorded last: as soon as there is no doubt about it, or the best guess
  // when the doubt has lasted; none until then. Compares up to kMaxPlaces places.
  std::optional<SequencePlace> Recognize() const;

  // Records that the job has followed the sequence for this many launches and still does.
  void RecordFollowed(SequenceId sequence, uint64_t launches);
  // Records that the job left the sequence after this many launches, where `position` was expected. It may
  // come back close by, some launches more or less. A sequence that is left soon each time is recognized by
  // longer runs only.
  void RecordLeft(SequenceId sequence, uint32_t position, uint64_t launches);
  // Records that the job came to the sequence from elsewhere, and that this was the first launch that fitted.
  // It is the likeliest one the next time.
  void RecordEntry(SequenceId sequence, uint32_t position);

 private:
  struct Place {
    SequenceId sequence = kNoSequence;
    uint32_t position = 0;
  };
  struct Sequence {
    std::vector<uint64_t> signatures;
    uint64_t followed_at = 0;  // a larger number is later
    bool proven = false;       // followed for a whole iteration
    uint32_t entry = 0;
    uint32_t least_run = 0;  // shorter runs are not believed any more
  };
  // A signature that stands in more places than these is no evidence.
  static constexpr size_t kMaxPlaces = 64;
  // The number of launches for which a sequence that was left is searched for close to the place, and how
  // close.
  static constexpr uint64_t kSoon = 64;
  static constexpr uint32_t kClose = 16;

  uint32_t RunAt(const Place& place, uint32_t most) const;
  bool IsNearWhereLeft(const SequencePlace& place) const;
  bool BeganAtEntry(const SequencePlace& place) const;
  SequencePlace Preferred(const std::vector<SequencePlace>& tied) const;
  Added Find(std::span<const uint64_t> signatures) const;
  std::optional<SequencePlace> Judge(const std::vector<SequencePlace>& best, size_t places) const;
  void ForgetUntilFits(size_t launches);
  void Remove(SequenceId sequence);

  SequenceOptions options_;
  std::map<SequenceId, Sequence> sequences_;
  std::unordered_map<uint64_t, std::vector<Place>> places_;  // of each signature
  size_t launches_ = 0;                                      // of all sequences
  SequenceId last_id_ = kNoSequence;
  uint64_t clock_ = 0;  // grows with each sequence added or followed

  std::vector<uint64_t> latest_;  // ring of the last kLongestRun launches
  uint64_t recorded_ = 0;         // launches in a row that are known
  SequencePlace left_;            // the place where a sequence was left; run unused
  uint64_t left_at_ = 0;          // all_recorded_ then
  uint64_t all_recorded_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_SEQUENCES_H_
