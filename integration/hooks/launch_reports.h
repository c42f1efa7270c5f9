// Texts about launches for users: the names of kernels and calls, what an audit finds, what the gate reports
// of launches that may reach every block, and advice for a launch that does not fit the budget. The gate
// calls this on launching threads, residencies on the thread that has something to report, the engine at the
// end. Locks and allocations are fine here, since these calls come only when something is wrong or over, or
// at a launch that waits for every block. No call fails. The residency unmaps blocks for the audit; the
// engine writes files.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_REPORTS_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_REPORTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "allocator/residency/state/residency_options.h"
#include "integration/hooks/function_registry.h"

namespace spillway::integration {

// ---- Names for the tags that launches carry: kernels and kinds of copy.

// Returns the name as in the source, if `name` is a C++ name, or `name` itself.
std::string Demangled(const std::string& name);
// Returns the driver function whose calls carry the tag; empty for a kernel's tag.
std::string CallOfTag(uint64_t tag);
// Returns the tag of a graph's launches, made of the function's tag and the graph's signature. It differs for
// almost every graph, since a graph is launched as if it were a kernel.
inline uint64_t TagOfGraph(uint64_t call, uint64_t signature) { return call ^ (signature & 0xffff); }
// Returns the driver function's name, such as "cuMemcpyDtoDAsync", or the kernel's demangled name; empty if
// neither is known. Takes the registry's lock.
std::string NameOfTag(FunctionRegistry* functions, uint64_t tag);

// Returns advice for a launch that needs more than the budget, and is refused or reaches host memory. It
// names the kernel and, if the kernel works on many tensors at once as optimizers and gradient clipping do,
// the option of PyTorch's that makes it fit. One or two sentences, or nothing. `kernel`: its readable name,
// empty if not known; `blocks`: the number that the launch names. Pure.
std::string LaunchAdvice(const std::string& kernel, size_t blocks);

// ---- Reports of the gate, each made once in the process.

// The reason why a launch may reach every block of its device.
enum class ReachesAll {
  kDenied,            // its kernel is in the deny list
  kNcclWorksOutside,  // a kernel of NCCL's, with its works outside of its arguments
  kNcclUnknown,       // a kernel of a version of NCCL that is not known
};
// Reports that all blocks are brought to the GPU for such launches. `kernel`: its readable name.
void ReportReachingAll(const std::string& kernel, ReachesAll why);
// Reports that the blocks do not fit the budget together, and the remedy.
void ReportReachingAllRefused(const std::string& kernel, ReachesAll why);

// ---- Audit mode.

// Reports what the audit finds, and has kernels recorded for the deny list. Thread-safe.
class Auditor : public allocator::AuditObserver {
 public:
  struct Kernel {
    std::string name;      // as the driver gives it
    std::string readable;  // demangled
    std::string library;   // empty: not known
    uint64_t launch = 0;
  };
  // Writes the kernel into the user's list. Returns a sentence for the user: the written line, and the next
  // step.
  using Record = std::function<std::string(const Kernel&)>;

  Auditor(FunctionRegistry* functions, Record record) : functions_(functions), record_(std::move(record)) {}

  void OnFault(const allocator::AuditedLaunch& launch) override;
  void OnEarlierFault(int device, uint64_t number, CUresult result) override;
  void OnCaptured(int device, uint64_t tag) override;
  void OnPassed(int) override { passed_.fetch_add(1, std::memory_order_relaxed); }

  // Returns a text like "audit: 12345 launches, 1 fault", for the end.
  std::string Summary() const;

 private:
  FunctionRegistry* const functions_;
  const Record record_;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> faults_{0};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_REPORTS_H_
