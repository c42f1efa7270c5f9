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
  void Add(CUgraph graph, PinTicket ticket) { graphs_.AddToGraph(graph, std::move(ticket)); }
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
  Add(Graph(1), Ticket(1));
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
  Add(Graph(1), Ticket(1));
  Add(Graph(2), Ticket(2));
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  graphs_.SetNode(Exec(1), Node(1), Ticket(3), &ended_);
  graphs_.SetNode(Exec(1), Node(1), Ticket(4), &ended_);
  EXPECT_EQ(Ended(), Blocks{3});
  graphs_.DropGraph(Graph(1), &ended_);
  graphs_.Update(Exec(1), Graph(2), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 4}));
}

TEST_F(GraphPinsTest, WhatABodyNamesIsTheGraphs) {
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.AddBody(Graph(2), Node(2), Graph(3));  // a condition inside a body
  Add(Graph(2), Ticket(1));
  graphs_.NoteCaptureInto(7);
  graphs_.AddToCapture(7, Ticket(2));
  graphs_.EndCapture(7, Graph(3), &ended_);
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  graphs_.Include(Graph(4), Graph(1));
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks()) << "the executable graph and the clone run the bodies, too";
  graphs_.DropExec(Exec(1), &ended_);
  EXPECT_EQ(Ended(), Blocks());
  graphs_.DropGraph(Graph(4), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 2}));
}

TEST_F(GraphPinsTest, AnUpdateTakesTheBodiesAlong) {
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  Add(Graph(2), Ticket(1));  // after the executable graph was made
  graphs_.Update(Exec(1), Graph(1), &ended_);
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks());
  graphs_.DropExec(Exec(1), &ended_);
  EXPECT_EQ(Ended(), Blocks{1});
}

TEST_F(GraphPinsTest, TheHandleOfABodyThatIsGoneMayComeBack) {
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.AddBody(Graph(2), Node(2), Graph(3));
  Add(Graph(2), Ticket(1));
  Add(Graph(3), Ticket(2));
  graphs_.DropNode(Node(1));
  graphs_.DropNode(Node(1));
  Add(Graph(2), Ticket(3));  // another graph
  Add(Graph(3), Ticket(4));
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 2}));
  graphs_.DropGraph(Graph(2), &ended_);
  graphs_.DropGraph(Graph(3), &ended_);
  EXPECT_EQ(Ended(), (Blocks{3, 4}));
}

TEST_F(GraphPinsTest, AGraphInsideAnUnknownNodeOwnsNothing) {
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.NoteInner(Graph(2));
  graphs_.NoteInner(Graph(3));
  Add(Graph(2), Ticket(1));
  Add(Graph(3), Ticket(2));
  graphs_.NoteCaptureInto(7);
  graphs_.AddToCapture(7, Ticket(3));
  graphs_.EndCapture(7, Graph(3), &ended_);
  graphs_.DropGraph(Graph(1), &ended_);
  graphs_.DropGraph(Graph(3), &ended_);
  EXPECT_EQ(Ended(), Blocks{1});
}

// The graph of an unknown node ends with it, unseen. Its handle then comes back for a graph of its own.
TEST_F(GraphPinsTest, TheHandleOfAnInnerGraphMayComeBack) {
  graphs_.NoteInner(Graph(1));
  graphs_.NoteInner(Graph(2));
  graphs_.AddToCapture(7, Ticket(1));
  graphs_.EndCapture(7, Graph(1), &ended_);
  graphs_.NoteMade(Graph(2));
  Add(Graph(2), Ticket(2));
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks{1});
  graphs_.DropGraph(Graph(2), &ended_);
  EXPECT_EQ(Ended(), Blocks{2});
}

// Of a capture whose stream is destroyed nobody sees the end.
TEST_F(GraphPinsTest, ARecaptureAfterOneThatEndedUnseenKeepsAllPins) {
  Add(Graph(1), Ticket(1));
  graphs_.Recapture(7, Graph(1));
  Add(Graph(1), Ticket(2));
  graphs_.Recapture(8, Graph(1));
  graphs_.AddToCapture(8, Ticket(3));
  EXPECT_EQ(Ended(), Blocks());
  graphs_.EndCapture(8, Graph(1), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 2}));
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks{3});
}

TEST_F(GraphPinsTest, ARecaptureReplacesWhatTheGraphNamed) {
  Add(Graph(1), Ticket(1));
  for (const bool succeeds : {false, true}) {
    graphs_.Recapture(7, Graph(1));
    graphs_.AddToCapture(7, Ticket(2));
    graphs_.Instantiate(Exec(1), Graph(1), &ended_);
    EXPECT_EQ(Ended(), Blocks());
    graphs_.EndCapture(7, succeeds ? Graph(1) : nullptr, &ended_);
    EXPECT_EQ(Ended(), succeeds ? Blocks() : Blocks{2});
    graphs_.DropExec(Exec(1), &ended_);
    EXPECT_EQ(Ended(), succeeds ? Blocks{1} : Blocks());
  }
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks{2});
}

TEST_F(GraphPinsTest, AnExecutableGraphThatIsCapturedLivesOnInTheGraph) {
  Add(Graph(1), Ticket(1));
  graphs_.Instantiate(Exec(1), Graph(1), &ended_);
  graphs_.SetNode(Exec(1), Node(1), Ticket(2), &ended_);
  graphs_.AddExecToCapture(7, Exec(1));
  graphs_.AddExecToCapture(7, Exec(2));
  graphs_.EndCapture(7, Graph(2), &ended_);
  graphs_.DropExec(Exec(1), &ended_);
  graphs_.DropGraph(Graph(1), &ended_);
  EXPECT_EQ(Ended(), Blocks());
  graphs_.DropGraph(Graph(2), &ended_);
  EXPECT_EQ(Ended(), (Blocks{1, 2}));
}

TEST_F(GraphPinsTest, AForgottenStreamIsNamedOnce) {
  Add(Graph(1), Ticket(1));
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
