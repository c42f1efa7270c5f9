#include "integration/engine/node_sharing.h"

#include <gtest/gtest.h>

#include "integration/engine/sizing.h"
#include "tests/sizes.h"

namespace spillway::integration {
namespace {

// Every process of the machine may be in the account of the default, so only what holds then is asserted.
TEST(NodeSharingTest, TheDefaultIsDividedAmongAll) {
  Settings settings;
  const HostSharing alone = ShareHostMemory(settings, 16 * kGiB);
  EXPECT_GE(alone.total_bytes, 4 * kGiB);
  settings.ranks = {2, 8, "Slurm", "17"};
  const HostSharing rank = ShareHostMemory(settings, 16 * kGiB);
  EXPECT_GE(rank.total_bytes, 4 * kGiB);
  EXPECT_LE(rank.share_bytes, rank.total_bytes / 8);
  EXPECT_GE(rank.share->peers(), 1u) << "the one above";
}

TEST(NodeSharingTest, ASizeIsThatOfTheJob) {
  Settings settings;
  settings.host_memory = Size{.bytes = 3 * kGiB + 12345};
  const HostSharing alone = ShareHostMemory(settings, kGiB);
  EXPECT_EQ(alone.total_bytes, 3 * kGiB + 12345);
  settings.ranks = {2, 4, "Slurm", "17"};
  const HostSharing rank = ShareHostMemory(settings, kGiB);
  EXPECT_EQ(rank.share->peers(), 0u) << "it is another job";
  EXPECT_EQ(rank.share_bytes, ShareOfRank(rank.total_bytes, 4));
  const HostSharing next = ShareHostMemory(settings, kGiB);
  EXPECT_EQ(next.share->peers(), 1u);
  settings.ranks.job = "18";
  EXPECT_EQ(ShareHostMemory(settings, kGiB).share->peers(), 0u);
}

TEST(NodeSharingTest, AShareIsOfWhatWouldBeAvailableWithoutTheOthers) {
  Settings settings;
  settings.host_memory = Size{.percent = 50};
  const HostSharing first = ShareHostMemory(settings, 16 * kGiB);
  ASSERT_TRUE(first.share->Register(4 * kGiB, UINT64_MAX));
  const HostSharing second = ShareHostMemory(settings, 12 * kGiB);
  EXPECT_GE(second.total_bytes, 8 * kGiB);
  EXPECT_LE(second.share_bytes, second.total_bytes - 4 * kGiB) << "what is left";
}

TEST(NodeSharingTest, ALimitBoundsSizesSharesAndTheDefault) {
  Settings settings;
  settings.most_host_memory = Size{.bytes = kGiB};
  EXPECT_EQ(ShareHostMemory(settings, 16 * kGiB).total_bytes, kGiB);
  settings.host_memory = Size{.percent = 50};
  EXPECT_EQ(ShareHostMemory(settings, 16 * kGiB).total_bytes, kGiB);
  settings.most_host_memory = Size{.percent = 25};
  settings.host_memory = Size{.bytes = 12 * kGiB};
  EXPECT_GE(ShareHostMemory(settings, 16 * kGiB).total_bytes, 4 * kGiB);
  EXPECT_LT(ShareHostMemory(settings, 16 * kGiB).total_bytes, 12 * kGiB);
}

TEST(NodeSharingTest, ACapIsThatOfTheRanksThatSpillThere) {
  Settings settings;
  EXPECT_EQ(SharedDirectory(settings, {"/a", kGiB}).sharers, 0);
  settings.ranks = {0, 4, "torchrun", "9"};
  EXPECT_EQ(SharedDirectory(settings, {"/a", kGiB}).sharers, 4);
  settings.dirs = {{{"/a", kGiB}}, {{"/b", kGiB}}};
  const io::SpillDirectory directory = SharedDirectory(settings, {"/a", kGiB});
  EXPECT_EQ(directory.sharers, 2);
  EXPECT_EQ(directory.cap_bytes, kGiB) << "the part is found out as it goes";
  Settings other = settings;
  other.ranks.rank = 2;
  EXPECT_EQ(SharedDirectory(other, {"/a", kGiB}).shared_as, directory.shared_as);
  other.ranks.job = "10";
  EXPECT_NE(SharedDirectory(other, {"/a", kGiB}).shared_as, directory.shared_as);
}

TEST(NodeSharingTest, ThePoolMayGrowToAllThatIsShared) {
  Settings settings;
  settings.host_memory = Size{.bytes = 8 * kGiB + 1};
  settings.ranks = {0, 8, "torchrun", "9"};
  const HostSharing sharing = ShareHostMemory(settings, kGiB);
  const allocator::HostPool::Options pool = SharedPoolOptions(sharing, 1);
  const auto staging = static_cast<uint64_t>(pool.evict_staging_buffers + pool.fault_staging_buffers);
  EXPECT_EQ(pool.storage_bytes + staging * kChunkBytes, 8 * kGiB);
  EXPECT_EQ(pool.evict_staging_buffers, HostPoolOptions(kGiB, 1).evict_staging_buffers);
  EXPECT_EQ(pool.share, sharing.share.get());
  settings.host_memory = Size{};
  const HostSharing none = ShareHostMemory(settings, kGiB);
  EXPECT_EQ(SharedPoolOptions(none, 1).storage_bytes, 0u);
  EXPECT_EQ(SharedPoolOptions(none, 1).share, nullptr);
}

}  // namespace
}  // namespace spillway::integration
