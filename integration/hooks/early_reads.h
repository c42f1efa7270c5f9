// Copies whose source may be read at any time from the call on (CU_MEMCPY_SRC_ACCESS_ORDER_ANY and
// ..._DURING_API_CALL). Elsewhere a stream waits for the blocks that are on their way; here the source must have
// arrived before the call is made. The wrappers of copies with attributes call this around the gate, on the
// thread of the call, which waits. Refused as by the gate when the source cannot be brought in.

#ifndef SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_
#define SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_

#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// Calls `pass`, which passes the gate, while the builder's early blocks are resident; nothing of them is on its
// way then. They may leave once `stream` has done what the call has queued.
CUresult PassEarlyReads(const AccessSetBuilder* builder, allocator::StreamRef stream, RealCall pass);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_
