// What users read of launches: the names of kernels and calls, what an audit finds, what the gate says of
// launches that may reach every block, and advice for a launch that does not fit the budget. Called by the
// gate on launching threads, by residencies on the thread that has something to report, and by the engine at
// the end. That happens only when something is wrong or over, or at a launch that waits for every block, so
// locks and allocations are fine. Nothing fails. The residency unmaps blocks for the audit, the engine writes
// files.

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

// The name as in the source, if it is a C++ name; else `name` itself.
std::string Demangled(const std::string& name);
// The driver function whose calls carry the tag; empty for a kernel's.
std::string CallOfTag(uint64_t tag);
// The tag of a graph's launches, of the function's tag and the graph's signature: another for almost every
// graph, since one is launched as if it was a kernel.
inline uint64_t TagOfGraph(uint64_t call, uint64_t signature) { return call ^ (signature & 0xffff); }
// The driver function's name, as "cuMemcpyDtoDAsync", or the kernel's demangled name; empty when neither is
// known. Takes the registry's lock.
std::string NameOfTag(FunctionRegistry* functions, uint64_t tag);

// Advice when a launch needs more than the budget, and is refused or reaches host memory: which kernel it is
// and, if it works on many tensors at once as optimisers and gradient clipping do, which of PyTorch's options
// makes it fit. One or two sentences, or nothing. `kernel`: its readable name, empty when not known; `blocks`: how many the launch names. Pure.
std::string LaunchAdvice(const std::string& kernel, size_t blocks);

// ---- What the gate says, each once in the process.

// Why a launch may reach every block of its device.
enum class ReachesAll {
  kDenied,            // its kernel is in the deny list
  kNcclWorksOutside,  // NCCL's, with its works outside of its arguments
  kNcclUnknown,       // of a version of NCCL that is not known
};
// That all blocks are brought to the GPU for such launches. `kernel`: its readable name.
void ReportReachingAll(const std::string& kernel, ReachesAll why);
// That they do not fit the budget together, and what helps.
void ReportReachingAllRefused(const std::string& kernel, ReachesAll why);

// ---- Audit mode.

// Reports what the audit finds, and has kernels recorded for the deny list. Any thread.
class Auditor : public allocator::AuditObserver {
 public:
  struct Kernel {
    std::string name;      // as the driver gives it
    std::string readable;  // demangled
    std::string library;   // empty: not known
    uint64_t launch = 0;
  };
  // Writes the kernel into the user's list. Returns a sentence for the user: what was written, what to do
  // now.
  using Record = std::function<std::string(const Kernel&)>;

  Auditor(FunctionRegistry* functions, Record record) : functions_(functions), record_(std::move(record)) {}

  void OnFault(const allocator::AuditedLaunch& launch) override;
  void OnEarlierFault(int device, uint64_t number, CUresult result) override;
  void OnCaptured(int device, uint64_t tag) override;
  void OnPassed(int) override { passed_.fetch_add(1, std::memory_order_relaxed); }

  // "audit: 12345 launches, 1 fault", for the end.
  std::string Summary() const;

 private:
  FunctionRegistry* const functions_;
  const Record record_;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> faults_{0};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_REPORTS_H_
