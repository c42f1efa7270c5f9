#include "integration/engine/node_sharing.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/engine/machine.h"
#include "integration/engine/sizing.h"
#include "integration/settings/setting_limits.h"

namespace spillway::integration {

std::string SharersOf(const Settings& settings, const std::string& what, bool sized) {
  if (!sized) return what;
  const NodeRanks& ranks = settings.ranks;
  const std::string job = ranks.size > 0 ? absl::StrCat(ranks.launcher, " ", ranks.size, " ", ranks.job)
                                         : absl::StrCat("session ", ::getsid(0));
  return absl::StrCat(what, " of user ", ::getuid(), ", ", job);
}

HostSharing ShareHostMemory(const Settings& settings, uint64_t available) {
  const bool sized = settings.host_memory && settings.host_memory->percent == 0;
  const std::string what =
      sized ? absl::StrCat(settings.host_memory->Of(0), " bytes of host memory") : "host memory";
  HostSharing sharing;
  sharing.share =
      std::make_unique<io::NodeShare>(io::NodeShare::Options{.directories = io::HostMemoryShareDirectories(),
                                                             .account = SharersOf(settings, what, sized),
                                                             .ranks = settings.ranks.size,
                                                             .unit_bytes = kChunkBytes});
  // Memory that others have pinned before is no longer available, but part of what is divided.
  const uint64_t all = available + sharing.share->taken_by_peers();
  const uint64_t asked = settings.host_memory ? settings.host_memory->Of(all) : DefaultHostCap(all, 1);
  sharing.total_bytes = Limited(asked, settings.most_host_memory, all);
  sharing.share_bytes = settings.ranks.size > 0 ? ShareOfRank(sharing.total_bytes, settings.ranks.size)
                                                : sharing.share->MostToTake(sharing.total_bytes);
  return sharing;
}

io::SpillDirectory SharedDirectory(const Settings& settings, const DirectoryEntry& entry) {
  io::SpillDirectory directory;
  directory.path = entry.path;
  directory.cap_bytes = entry.cap_bytes;
  directory.shared_as = SharersOf(settings, absl::StrCat(entry.cap_bytes, " bytes of a directory"), true);
  if (settings.ranks.size > 0)
    directory.sharers = RanksThatShare(entry.path, settings.RankDirectories(), settings.ranks.size);
  return directory;
}

allocator::HostPool::Options SharedPoolOptions(const HostSharing& sharing, size_t drives) {
  allocator::HostPool::Options pool = HostPoolOptions(sharing.share_bytes, drives);
  if (sharing.total_bytes == 0) return pool;  // no host tier
  const auto staging = static_cast<uint64_t>(pool.evict_staging_buffers + pool.fault_staging_buffers);
  const uint64_t buffers = sharing.total_bytes / kChunkBytes;
  pool.storage_bytes = (buffers - std::min(buffers, staging)) * kChunkBytes;
  pool.share = sharing.share.get();
  pool.shared_bytes = sharing.total_bytes;
  return pool;
}

}  // namespace spillway::integration
