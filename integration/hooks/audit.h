// Audit mode and the deny list at the gate: launches that name no block, launches of denied kernels, and the words for
// what an audit finds. What is mapped when is the residency's business (allocator/residency/audit.h), files are the
// engine's.

#ifndef SPILLWAY_INTEGRATION_HOOKS_AUDIT_H_
#define SPILLWAY_INTEGRATION_HOOKS_AUDIT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "allocator/residency/state/residency_options.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// A launch that names no block of ours. In audit mode it is audited as any other; a denied kernel brings all back.
CUresult PassNothingNamed(Touch* touch, allocator::StreamRef stream, RealCall real);
// The same for calls that are not collected (graph launches).
CUresult CallUncollected(HookState* state, uint64_t tag, allocator::StreamRef stream, RealCall real);

// A launch of a kernel of the deny list: its own blocks are held as far as there is room, and every live block of the
// device is resident for it. CUDA_ERROR_OUT_OF_MEMORY when they do not fit together.
CUresult PassDenied(Touch* touch, allocator::StreamRef stream, RealCall real);

// A kernel of the deny list goes into a graph, whose launches nobody sees coming: no eviction from now on.
void NoteDeniedInGraph(Touch* touch);

// Tells the user what the audit finds, and has kernels written down.
class Auditor : public allocator::AuditObserver {
 public:
  struct Kernel {
    std::string name;      // as the driver tells it
    std::string readable;  // demangled
    std::string library;   // empty: not known
    uint64_t launch = 0;
  };
  // Writes the kernel into the user's list; returns what the user should know of it and do now, as a sentence.
  using Record = std::function<std::string(const Kernel&)>;

  Auditor(FunctionRegistry* functions, Record record) : functions_(functions), record_(std::move(record)) {}

  void OnFault(const allocator::AuditedLaunch& launch) override;
  void OnEarlierFault(int device, uint64_t number, CUresult result) override;
  void OnCaptured(int device, uint64_t tag) override;
  void OnPassed(int) override { passed_.fetch_add(1, std::memory_order_relaxed); }

  // "12345 launches, 1 fault": for the end.
  std::string Summary() const;

 private:
  FunctionRegistry* const functions_;
  const Record record_;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> faults_{0};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_AUDIT_H_
