// KernelWrites: the blocks that PyTorch's own kernels write, and those that they only read, by the kernels'
// names. A first run has these facts before it has sampled any launch. The table holds only facts that the
// kernels' source, or an operator's schema, makes certain; docs/decisions/0046 describes how it was made and
// checked. A wrong row costs a write. Pure; any thread; nothing fails.

#ifndef SPILLWAY_INTEGRATION_PROFILE_KERNEL_WRITES_H_
#define SPILLWAY_INTEGRATION_PROFILE_KERNEL_WRITES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "policy/trace/write_facts.h"

namespace spillway::integration {

// The name of a kernel without namespaces and template arguments: "reduce_kernel" of
// "_ZN2at6native13reduce_kernelILi512E...". A name that is not mangled is its own. Empty: it is mangled
// otherwise.
std::string_view KernelBaseName(std::string_view name);

// Returns the facts about launches of that kernel, for each number of blocks that they may name; empty if
// there are none. `tag`: of the kernel.
std::vector<policy::FormFacts> KnownWrites(std::string_view name, uint64_t tag);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PROFILE_KERNEL_WRITES_H_
