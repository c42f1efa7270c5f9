// What audit mode tells of what it finds: the hooks' side, which knows names, implements it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_OBSERVER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_OBSERVER_H_

#include <cstdint>
#include <vector>

#include "allocator/residency/residency.h"

namespace spillway::allocator {

// A launch, or a copy or memset, that ended in a fault.
struct AuditedLaunch {
  int device = 0;
  uint64_t number = 0;  // of the audited launches of this device, from 1
  uint64_t tag = 0;     // as given to Run
  CUresult result = CUDA_SUCCESS;
  std::vector<Residency::Range> blocks;  // what it named
};

// Called on launching threads with no lock held, while the audited launch has its turn: must not launch anything.
class AuditObserver {
 public:
  virtual ~AuditObserver() = default;
  // The launch touched what it did not name (or is wrong by itself). Once per device: its context is lost.
  virtual void OnFault(const AuditedLaunch& launch) = 0;
  // Something that did not come through the gate failed before launch `number`. Once per device.
  virtual void OnEarlierFault(int device, uint64_t number, CUresult result) = 0;
  // The launch goes into a graph and cannot be waited for: not audited.
  virtual void OnCaptured(int device, uint64_t tag) = 0;
  // All of it has been audited, without a fault so far: for the count.
  virtual void OnPassed(int device) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_OBSERVER_H_
