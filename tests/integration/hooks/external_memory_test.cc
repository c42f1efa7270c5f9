#include "integration/hooks/external_memory.h"

#include <gtest/gtest.h>

#include "tests/integration/hooks/fake_residency.h"

namespace spillway::integration {
namespace {

using Kind = ExternalMemory::Kind;

TEST(ExternalMemoryTest, ADeviceGetsTheSumAndThenEachChange) {
  ExternalMemory ledger;
  FakeResidency residency;
  ledger.OnAllocate(Kind::kAddress, 0x1000, 1, 500);
  ledger.OnAllocate(Kind::kArray, 0x1000, 1, 30);  // another kind, another allocation
  ledger.Attach(1, &residency);
  EXPECT_EQ(residency.external_bytes, 530);
  EXPECT_EQ(ledger.OnFree(Kind::kAddress, 0x1000), 500u);
  EXPECT_EQ(ledger.OnFree(Kind::kAddress, 0x1000), 0u) << "not known any more";
  EXPECT_EQ(residency.external_bytes, 30);
  EXPECT_EQ(ledger.bytes(1), 30);
  ledger.ForgetDevice(1);
  EXPECT_EQ(residency.external_bytes, 0);
}

TEST(ExternalMemoryTest, AnAddressSeenTwiceCountsOnce) {
  ExternalMemory ledger;
  ledger.OnAllocate(Kind::kAddress, 0x1000, 0, 500);
  ledger.OnAllocate(Kind::kAddress, 0x1000, 0, 70);  // its free was not seen
  EXPECT_EQ(ledger.bytes(0), 70);
  ledger.OnAllocate(Kind::kAddress, 0x2000, -1, 70);
  ledger.OnAllocate(Kind::kAddress, 0x3000, allocator::kMaxDevices, 70);
  EXPECT_EQ(ledger.bytes(0), 70);
}

TEST(ExternalMemoryTest, PhysicalMemoryLivesWhileAnythingNamesIt) {
  ExternalMemory ledger;
  ledger.OnCreate(7, 0, 4096);
  ledger.OnRetain(7);
  ledger.OnMap(0x40000, 4096, 7);
  ledger.OnRelease(7);
  ledger.OnRelease(7);
  EXPECT_EQ(ledger.bytes(0), 4096) << "still mapped";
  ledger.OnUnmap(0x40000, 4096);
  EXPECT_EQ(ledger.bytes(0), 0);
}

}  // namespace
}  // namespace spillway::integration
