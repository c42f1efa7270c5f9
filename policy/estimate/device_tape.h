// DeviceTape: a training job's operations on the memory of its device, recorded in order: blocks that are
// allocated and freed, and launches that read and write them. Tensors are handles that share a block, as
// PyTorch's share a storage: the last one to go frees it. The tape makes a Workload of the iteration between
// StartIteration() and Finish(); the peak covers everything. The models of an iteration write on it. Pure;
// one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_DEVICE_TAPE_H_
#define SPILLWAY_POLICY_ESTIMATE_DEVICE_TAPE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "policy/estimate/torch_memory.h"
#include "policy/model/workload.h"

namespace spillway::policy {

enum class NumberType : uint8_t { kFp32, kBf16, kInt64, kBool };
Bytes BytesOf(NumberType type);

// The purpose of a block.
enum class Term : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,  // its state
  kActivations,
  kLogits,
  kOptimizerTemporaries,  // blocks that an update makes and drops
  kWorkspace,             // of the matrix library
};
inline constexpr size_t kTerms = 7;
using BytesByTerm = std::array<Bytes, kTerms>;

class DeviceTape;

// Owns one block, which its destructor frees.
class Storage {
 public:
  Storage(DeviceTape* tape, uint32_t id) : tape_(tape), id_(id) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  uint32_t id() const { return id_; }

 private:
  DeviceTape* tape_;
  uint32_t id_;
};

// A view of a block; one without a block is no tensor. The elements of a view of a part are the part's.
struct Tensor {
  std::shared_ptr<Storage> storage;
  uint64_t elements = 0;
  NumberType type = NumberType::kFp32;

  explicit operator bool() const { return storage != nullptr; }
  double bytes() const { return static_cast<double>(elements) * static_cast<double>(BytesOf(type)); }
};

// The cost of a launch to the device besides its start: operations of matrix units and bytes of memory.
struct LaunchCost {
  double operations = 0;
  bool half = false;  // the operations are on bf16
  double bytes = 0;
};

// One iteration of the job, and its needs.
struct TapeResult {
  Workload workload;              // blocks of more than 1 MiB, in whole chunks of 2 MiB; durations 0
  std::vector<LaunchCost> costs;  // of each kernel
  Bytes peak_allocated = 0;       // as PyTorch's allocator counts, over everything on the tape
  Bytes peak_reserved = 0;        // its segments
  BytesByTerm terms = {};         // of peak_allocated
  Bytes peak_chunks = 0;          // blocks of more than 1 MiB in whole chunks, at most
  Bytes small_bytes = 0;          // segments of the smaller blocks
};

class DeviceTape {
 public:
  Tensor New(uint64_t elements, NumberType type);
  Tensor NewAs(uint64_t elements, NumberType type, Term term);

  // Sets the term of blocks to come; returns the one before.
  Term SetTerm(Term term);
  Term term() const { return term_; }
  // Gives the tensor's block to `term` from now on. `key` identifies a gradient, so that the one that the
  // next iteration makes is recognized as the same.
  void Rename(const Tensor& tensor, Term term, uint32_t key);

  // Tensors without a block are passed over.
  void Launch(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
              double operations = 0, bool half = false);

  // Makes launches belong to the iteration from now on. A block that was allocated before and is freed after
  // must be a renamed gradient, or one that no later launch names.
  void StartIteration();
  TapeResult Finish();

 private:
  friend class Storage;
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Block {
    Bytes bytes = 0;  // as asked for
    TorchMemory::Address address = 0, small_address = 0;
    Term term = Term::kActivations;
    uint32_t key = kNone;
    bool live = true, before = false;         // before: allocated before the iteration
    uint32_t created = kNone, freed = kNone;  // kernels of the iteration
    uint32_t tensor = kNone;                  // of the workload
  };

  void Release(uint32_t id);
  uint32_t Kernels() const { return static_cast<uint32_t>(result_.workload.kernels.size()); }
  std::vector<uint32_t> Name(const std::vector<Tensor>& tensors);
  void JoinGradients();

  TorchMemory memory_;  // all blocks
  TorchMemory small_;   // blocks that stay with PyTorch's allocator beside Spillway
  std::vector<Block> blocks_;
  Term term_ = Term::kActivations;
  BytesByTerm live_ = {};
  Bytes chunks_ = 0;
  bool recording_ = false;
  TapeResult result_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_DEVICE_TAPE_H_
