// Whether a block may leave the GPU at all, as far as somebody outside the memory core has an opinion (SPILLWAY_TRUST).

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LEAVE_PERMISSION_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LEAVE_PERMISSION_H_

#include "allocator/memory/block_id.h"

namespace spillway::allocator {

class LeavePermission {
 public:
  virtual ~LeavePermission() = default;
  // With the lock of the block's device held: must not block. The answer may change at any time.
  virtual bool MayLeave(BlockId block) const = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LEAVE_PERMISSION_H_
