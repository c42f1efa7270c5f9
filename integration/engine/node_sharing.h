// The resources that this process shares with others of its node: host memory, and the caps of spill
// directories. The engine calls it at the first block; io::NodeShare does the sharing. Any thread may call
// it; no call fails: a process that cannot see the others counts as alone, and as a rank has its equal share.

#ifndef SPILLWAY_INTEGRATION_ENGINE_NODE_SHARING_H_
#define SPILLWAY_INTEGRATION_ENGINE_NODE_SHARING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "allocator/tier/host_pool.h"
#include "integration/settings/settings.h"
#include "io/store/node_share.h"
#include "io/store/spill_store_options.h"

namespace spillway::integration {

struct HostSharing {
  std::unique_ptr<io::NodeShare> share;
  uint64_t total_bytes = 0;  // the cap for all processes that share
  uint64_t share_bytes = 0;  // this process's part of it: a rank's part, otherwise what is free now
};

// Returns the name of the group that shares under these settings. A size that the user has named applies to
// one job: to the processes that a launcher names as one, otherwise to the user's session. A share of what is
// available applies to all processes.
std::string SharersOf(const Settings& settings, const std::string& what, bool sized);

// Returns how the pool divides its share into staging and storage. It may grow to all that is shared.
allocator::HostPool::Options SharedPoolOptions(const HostSharing& sharing, size_t drives);

// Returns a spill directory, whose cap applies to all ranks that spill there.
io::SpillDirectory SharedDirectory(const Settings& settings, const DirectoryEntry& entry);

// Registers the process. `available`: bytes that it could still take, without what the others have pinned.
HostSharing ShareHostMemory(const Settings& settings, uint64_t available);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_NODE_SHARING_H_
