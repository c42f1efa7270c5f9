// KnownSequences: a bounded library of the sequences that a job repeats, each the launch signatures of one
// iteration, and where among them the job is now, judged by its latest launches. A sequence goes round: after
// its last launch comes its first. SequenceTracker adds sequences and reports launches; what a sequence is
// good for (its plan) is kept by the caller under the sequence's id. One thread; nothing fails. Signatures
// are all it looks at.

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
  // How many of the latest launches must fit a place before it is believed:
  uint32_t alone = 2;  // when the latest launch stands nowhere else
  uint32_t clear = 8;  // when it fits further back than all other places
  uint32_t tied = 16;  // when several places fit equally well
};

// The place of a launch in a sequence.
struct SequencePlace {
  SequenceId sequence = kNoSequence;
  uint32_t position = 0;
  uint32_t run = 0;  // so many of the latest launches fit it; KnownSequences::kLongestRun at most are counted
  bool clear = false;  // no other place fits as far back
};

class KnownSequences {
 public:
  static constexpr uint32_t kLongestRun = 4096;

  KnownSequences() : KnownSequences(SequenceOptions()) {}
  explicit KnownSequences(const SequenceOptions& options);

  // Adds the launches of one iteration, from where it begins if that is known. A sequence that is known
  // already, in any rotation, keeps its id and its rotation; `position` says where signatures[0] stands in
  // it. Sequences are forgotten until the new one fits: those followed least lately, and first those never
  // followed for a whole iteration when they are many. kNoSequence: it is too long.
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

  // The job's next launch. To be called for each launch, in a known sequence or not. Constant time.
  void Note(uint64_t signature);
  // The launches before the next one are not known.
  void ForgetLatest() { noted_ = 0; }
  // The place of the launch noted last: as soon as there is no doubt about it, or the best guess when the
  // doubt has lasted; none until then. Looks at up to kMostPlaces places.
  std::optional<SequencePlace> Recognise() const;

  // The job has followed the sequence for so many launches and still does.
  void NoteFollowed(SequenceId sequence, uint64_t launches);
  // The job left the sequence after so many launches, where `position` was expected. It may come back close
  // by, some launches more or less. A sequence that is left soon each time is recognised by longer runs only.
  void NoteLeft(SequenceId sequence, uint32_t position, uint64_t launches);
  // The job came to the sequence from elsewhere, and this was the first launch that fitted. It is the
  // likeliest one the next time.
  void NoteEntry(SequenceId sequence, uint32_t position);

 private:
  struct Place {
    SequenceId sequence = kNoSequence;
    uint32_t position = 0;
  };
  struct Sequence {
    std::vector<uint64_t> signatures;
    uint64_t followed_at = 0;  // larger: later
    bool proven = false;       // followed for a whole iteration
    uint32_t entry = 0;
    uint32_t least_run = 0;  // shorter runs are not believed any more
  };
  // A signature that stands in more places than these says nothing.
  static constexpr size_t kMostPlaces = 64;
  // For how many launches after it was left a sequence is looked for close to where it was, and how close.
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
  uint64_t noted_ = 0;            // launches in a row that are known
  SequencePlace left_;            // where a sequence was left; run unused
  uint64_t left_at_ = 0;          // all_noted_ then
  uint64_t all_noted_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_SEQUENCES_H_
