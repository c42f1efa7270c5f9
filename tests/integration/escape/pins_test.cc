#include "integration/escape/pins.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/integration/hooks/fake_residency.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::PinReason;

class PinsTest : public testing::Test {
 protected:
  PinsTest() {
    for (int device = 0; device < 2; ++device) devices_.Set(device, &residency_[device]);
    set_.Add(first_);
    set_.Add(second_);
  }
  int Pins() const {
    return residency_[0].PinsOf(first_, PinReason::kGraph) + residency_[1].PinsOf(second_, PinReason::kGraph);
  }

  const BlockId first_{0, 3};
  const BlockId second_{1, 5};
  FakeResidency residency_[2];
  DeviceResidencies devices_;
  allocator::AccessSet set_;
};

TEST_F(PinsTest, EachDevicePinsItsOwnBlocks) {
  PinTicket ticket;
  EXPECT_EQ(PinBlocks(devices_, set_, PinReason::kGraph, &ticket), CUDA_SUCCESS);
  EXPECT_EQ(ticket.blocks.size(), 2u);
  EXPECT_EQ(Pins(), 2);
  std::vector<PinTicket> tickets = {std::move(ticket), {}};
  EndPins(devices_, &tickets, {});
  EXPECT_TRUE(tickets.empty());
  EXPECT_EQ(Pins(), 0);
}

TEST_F(PinsTest, WhatWasTakenBeforeARefusalIsEnded) {
  residency_[1].pin_status = absl::ResourceExhaustedError("full");
  PinTicket ticket;
  EXPECT_EQ(PinBlocks(devices_, set_, PinReason::kGraph, &ticket), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(ticket.blocks.empty());
  EXPECT_EQ(Pins(), 0);
}

TEST_F(PinsTest, ADeviceWithoutAResidencyPinsNothing) {
  devices_.Set(1, nullptr);
  PinTicket ticket;
  EXPECT_EQ(PinBlocks(devices_, set_, PinReason::kGraph, &ticket), CUDA_SUCCESS);
  EXPECT_EQ(ticket.blocks.size(), 1u);
}

TEST_F(PinsTest, AReasonIsReportedOnce) {
  PinReports reports;
  testing::internal::CaptureStderr();
  reports.Report(PinReason::kExport, "cuFirst");
  reports.Report(PinReason::kExport, "cuSecond");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("(export): cuFirst"), std::string::npos) << text;
  EXPECT_EQ(text.find("cuSecond"), std::string::npos) << text;
}

TEST_F(PinsTest, AnAskerOfPrivateTablesIsReportedOnce) {
  PinReports reports;
  EXPECT_TRUE(reports.ReportTable("libcupti.so.13", "private driver table 1"));
  EXPECT_FALSE(reports.ReportTable("libcupti.so.13", "private driver table 2"));
  EXPECT_TRUE(reports.ReportTable("libother.so", "private driver table 1"));
}

TEST_F(PinsTest, ObjectsKeepTheirTicketsByKindAndName) {
  ObjectPins objects;
  using Kind = ObjectPins::Kind;
  EXPECT_TRUE(objects.Add(Kind::kTexture, 5, {PinReason::kTexture, {{first_, 1}}}).blocks.empty());
  EXPECT_TRUE(objects.Take(Kind::kSurface, 5).blocks.empty());
  const PinTicket before = objects.Add(Kind::kTexture, 5, {PinReason::kTexture, {{second_, 1}}});
  ASSERT_EQ(before.blocks.size(), 1u);
  EXPECT_EQ(before.blocks[0].id, first_);
  EXPECT_EQ(objects.Take(Kind::kTexture, 5).blocks.size(), 1u);
  EXPECT_TRUE(objects.Take(Kind::kTexture, 5).blocks.empty());
}

}  // namespace
}  // namespace spillway::integration
