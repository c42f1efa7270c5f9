// WriteFacts: which accesses write, learnt from observations. All accesses of a function (its tag) at one
// place of its access set count as one here. One observed change shows forever that the access writes. An
// access is believed to read only after several looks. Correctness never depends on it: a plan may count on
// it, and the drop is checked. The write sampler adds observations; the planner asks a copy that does not
// change. No call fails.

#ifndef SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_
#define SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace spillway::policy {

enum class Writes : uint8_t { kUnknown, kNo, kYes };

// Not thread-safe. It is copied for another thread that plans with it.
class WriteFacts {
 public:
  // The number of looks without a change after which an access counts as one that only reads. The looks are
  // to come from different iterations: a kernel may write what was there already (a flag, a zero over a zero)
  // in one iteration and not in another.
  static constexpr uint32_t kLooksForNo = 3;

  // Adds one observation: the block at place `operand` had, or had not, other bytes after a launch of `tag`
  // than before it.
  void Note(uint64_t tag, uint32_t operand, bool changed);

  // Unknown counts as written wherever bytes depend on it.
  Writes Of(uint64_t tag, uint32_t operand) const;
  // Returns whether the answer is known, so that no further look at the access is needed.
  bool Settled(uint64_t tag, uint32_t operand) const { return Of(tag, operand) != Writes::kUnknown; }

  size_t size() const { return accesses_.size(); }  // accesses seen
  // Goes up whenever an answer of Of has changed: a new plan may be better than the last one.
  uint64_t version() const { return version_; }

 private:
  struct Key {
    uint64_t tag;
    uint32_t operand;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      const uint64_t mixed = (key.tag ^ (uint64_t{key.operand} << 56 | key.operand)) * 0x9e3779b97f4a7c15u;
      return static_cast<size_t>(mixed ^ (mixed >> 32));
    }
  };
  struct Access {
    bool changed = false;
    uint32_t looks = 0;  // without a change
  };
  static Writes Answer(const Access& access);

  std::unordered_map<Key, Access, Hash> accesses_;
  uint64_t version_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_
