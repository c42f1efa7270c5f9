// WriteFacts: which accesses write, learned from observations, and guessed from the facts of other runs. All
// accesses at one place of the access sets of a function, if these name equally many blocks, count as one
// here. One observed change shows forever that the access writes. An access counts as one that only reads
// after several observations without a change, or after one if a guess says the same. Correctness never
// depends on it: a plan may count on it, and the drop is checked. The write sampler adds observations; the
// planner asks a copy that does not change. No call fails.

#ifndef SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_
#define SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace spillway::policy {

enum class Writes : uint8_t { kUnknown, kNo, kYes };

// Launches of one function that name equally many blocks. A tensor of less than a block is not named, so the
// same place of sets of other sizes may be another parameter.
struct LaunchForm {
  uint64_t tag = 0;
  uint32_t blocks = 0;
  friend bool operator==(const LaunchForm&, const LaunchForm&) = default;
};

// The facts and guesses about the accesses of a form. Bit i: the block at place i of the set. Blocks from
// kMaxOperands on have no bit.
struct FormFacts {
  static constexpr uint32_t kMaxOperands = 64;
  LaunchForm form;
  uint64_t reads = 0;   // and does not write
  uint64_t writes = 0;  // no bit of the other
  friend bool operator==(const FormFacts&, const FormFacts&) = default;
};

// Not thread-safe. It is copied for another thread that plans with it.
class WriteFacts {
 public:
  // The number of observations without a change after which an access counts as one that only reads. They
  // should come from different iterations: a kernel may write the value that is there already (a flag, a zero
  // over a zero) in one iteration and another value in the next.
  static constexpr uint32_t kSamplesForNo = 3;

  // One observation: the block at place `operand` of the set had, or had not, other bytes after a launch of
  // `form` than before it.
  void Record(LaunchForm form, uint32_t operand, bool changed);
  // Adds a guess from elsewhere. The first of two guesses about an access counts; an observation that
  // contradicts a guess counts more.
  void Guess(const FormFacts& guess);

  // Unknown counts as written wherever bytes depend on it.
  Writes Of(LaunchForm form, uint32_t operand) const;
  // Whether observations have decided it, so that no more are needed.
  bool Settled(LaunchForm form, uint32_t operand) const;

  // The settled facts, in no order.
  std::vector<FormFacts> SettledForms() const;

  size_t size() const { return accesses_.size(); }  // accesses seen, or guessed about
  // Goes up whenever an answer of Of has changed: a plan made before may be improved.
  uint64_t version() const { return version_; }

 private:
  struct Key {
    LaunchForm form;
    uint32_t operand;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      const uint64_t numbers = uint64_t{key.operand} << 56 | uint64_t{key.form.blocks} << 32 | key.operand;
      const uint64_t mixed = (key.form.tag ^ numbers) * 0x9e3779b97f4a7c15u;
      return static_cast<size_t>(mixed ^ (mixed >> 32));
    }
  };
  struct Access {
    Writes guess = Writes::kUnknown;
    bool changed = false;
    uint32_t unchanged = 0;  // observations without a change
  };
  static Writes Found(const Access& access);
  static Writes Answer(const Access& access);

  std::unordered_map<Key, Access, Hash> accesses_;
  uint64_t version_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_WRITE_FACTS_H_
