// Early reads: blocks that a call may read before its stream gets there. Wrappers use it around the gate, on
// the thread of the hooked call. A call is refused as the gate refuses it.

#ifndef SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_
#define SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_

#include "absl/functional/function_ref.h"
#include "integration/hooks/access_set_builder.h"

namespace spillway::integration {

// Calls `pass`, which passes the gate, while the builder's early blocks are resident: the sources of copies
// that may be read at any time from the call on (CU_MEMCPY_SRC_ACCESS_ORDER_ANY and ..._DURING_API_CALL). For
// other blocks on their way to the GPU it is enough that the stream waits; early blocks have arrived before
// `pass`. They may leave once `stream` has done what the call has queued.
CUresult PassEarlyReads(const AccessSetBuilder* builder, allocator::StreamRef stream,
                        absl::FunctionRef<CUresult()> pass);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_EARLY_READS_H_
