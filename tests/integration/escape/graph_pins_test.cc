#include "integration/escape/graph_pins.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::PinReason;

// How long the pins of a captured graph last; the graph functions themselves are tried in
// escaped_families_test.
class GraphPinsTest : public testing::Test {
 protected:
  static CUgraph Graph(uintptr_t n) { return reinterpret_cast<CUgraph>(0xb000 + 16 * n); }
  static CUgraphExec Exec(uintptr_t n) { return reinterpret_cast<CUgraphExec>(0xc000 + 16 * n); }
  static CUgraphNode Node(uintptr_t n) { return reinterpret_cast<CUgraphNode>(0xd000 + 16 * n); }
  static CUstream Stream(uintptr_t n) { return reinterpret_cast<CUstream>(0x9000 + n); }
  static PinTicket Ticket(uint32_t index) { return {PinReason::kGraph, {{BlockId(0, index), 1}}}; }
  // Blocks whose pins have ended since the last call.
  std::vector<uint32_t> Ended() {
    std::vector<uint32_t> blocks;
    for (const auto& [ticket, users] : ended_) blocks.push_back(ticket.blocks.at(0).id.index());
    ended_.clear();
    return blocks;
  }
  using Blocks = std::vector<uint32_t>;

  GraphPins graphs_;
  GraphPins::Ended ended_;
};

TEST_F(GraphPinsTest, ACaptureBecomesAGraphOrNothing) {
  graphs_.AddToCapture(7, Ticket(1));
  graphs_.AddToCapture(8, Ticket(2));
  graphs_.EndCapture(7, Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks());
  graphs_.EndCapture(8, nullptr, &ended_);
  EXPECT_EQ(Ended(), Blocks{2});
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks{1});
}

TEST_F(GraphPinsTest, TheLastOwnerEndsThem) {
  graphs_.AddToGraph(Graph(1), Ticket(1));
  graphs_.Include(Graph(2), Graph(1));
  graphs_.Instantiate(Exec(1), Graph(2), &ended_);
  graphs_.DropGraph(Graph(1), &ended_);
  graphs_.DropGraph(Graph(2), &ended_);
  EXPECT_EQ(Ended(), Blocks());
  graphs_.NoteLaunch(Exec(1), {Stream(4), false});
  graphs_.DropExec(Exec(1), &ended_);
  ASSERT_EQ(ended_.size(), 1u);
  ASSERT_EQ(ended_[0].second.streams.size(), 1u) << "the launch may still run";
  EXPECT_EQ(ended_[0].second.streams[0].handle, Stream(4));
}

TEST_F(GraphPinsTest, AnUpdateEndsTheParametersOfNodes) {
  graphs_.AddToGraph(Graph(1), Ticket(1));
  graphs_.AddToGraph(Graph(2), Ticket(2));
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  graphs_.SetNode(Exec(1), Node(1), Ticket(3), &ended_);
  graphs_.SetNode(Exec(1), Node(1), Ticket(4), &ended_);
  EXPECT_EQ(Ended(), Blocks{3});
  graphs_.DropGraph(Graph(1), &ended_);
  graphs_.Update(Exec(1), Graph(2), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 4}));
}

TEST_F(GraphPinsTest, AForgottenStreamIsNamedOnce) {
  graphs_.AddToGraph(Graph(1), Ticket(1));
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  graphs_.NoteLaunch(Exec(1), {Stream(4), false});
  std::vector<PinTicket> launched;
  graphs_.ForgetStream(Stream(4), &launched);
  EXPECT_EQ(launched.size(), 1u);
  graphs_.ForgetStream(Stream(4), &launched);
  EXPECT_EQ(launched.size(), 1u);
}

}  // namespace
}  // namespace spillway::integration
