#include "integration/escape/graph_blocks.h"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

namespace spillway::integration {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

// Which memory a launch names; the graph functions themselves are tried in escaped_graphs_test.
class GraphBlocksTest : public testing::Test {
 protected:
  static CUgraph Graph(uintptr_t n) { return reinterpret_cast<CUgraph>(0xb000 + 16 * n); }
  static CUgraphExec Exec(uintptr_t n) { return reinterpret_cast<CUgraphExec>(0xc000 + 16 * n); }
  static CUgraphNode Node(uintptr_t n) { return reinterpret_cast<CUgraphNode>(0xd000 + 16 * n); }
  static GraphBlocks::Ranges Range(CUdeviceptr base) { return {{base, 100}}; }
  void Make(uintptr_t graph) { graphs_.RecordMade(Graph(graph)); }
  void Add(uintptr_t graph, CUdeviceptr base) { graphs_.AddToGraph(Graph(graph), Range(base)); }
  void Instantiate(uintptr_t exec, uintptr_t graph) { graphs_.Instantiate(Exec(exec), Graph(graph), false); }
  // Where the blocks of a launch begin; none: it is not known.
  std::optional<std::vector<CUdeviceptr>> Named(uintptr_t exec) {
    std::vector<CUdeviceptr> bases;
    const bool known = graphs_.Visit(Exec(exec), [&](const GraphBlocks::Ranges& ranges, uint64_t signature) {
      for (const auto& range : ranges) bases.push_back(range.base);
      signature_ = signature;
    });
    return known ? std::make_optional(bases) : std::nullopt;
  }
  std::optional<std::vector<CUdeviceptr>> NamedByGraph(uintptr_t graph) {
    Instantiate(99, graph);
    return Named(99);
  }

  GraphBlocks graphs_;
  uint64_t signature_ = 0;
};

TEST_F(GraphBlocksTest, ACaptureBecomesAGraphOrNothing) {
  EXPECT_FALSE(graphs_.Follows(uint64_t{0}));
  EXPECT_TRUE(graphs_.Follows(uint64_t{7}));
  graphs_.AddToCapture(7, Range(1000));
  graphs_.AddToCapture(8, Range(2000));
  graphs_.EndCapture(8, nullptr);
  graphs_.EndCapture(8, Graph(3));
  graphs_.EndCapture(7, Graph(1));
  graphs_.EndCapture(9, Graph(2));
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000)));
  EXPECT_THAT(NamedByGraph(2), Optional(IsEmpty()));
  EXPECT_THAT(NamedByGraph(3), Optional(IsEmpty()));
}

TEST_F(GraphBlocksTest, OfACaptureWhoseIdIsNotGivenNothingIsKnown) {
  graphs_.AddToCapture(7, Range(1000));
  graphs_.EndCapture(0, Graph(1));
  EXPECT_EQ(NamedByGraph(1), std::nullopt);
}

TEST_F(GraphBlocksTest, EachAddressOnceInOrderWithTheLargestSize) {
  Make(1);
  Add(1, 3000);
  Add(1, 1000);
  graphs_.AddToGraph(Graph(1), {{1000, 700}, {2000, 50}});
  Add(1, 1000);
  Instantiate(1, 1);
  EXPECT_TRUE(graphs_.Visit(Exec(1), [](const GraphBlocks::Ranges& ranges, uint64_t) {
    ASSERT_EQ(ranges.size(), 3u);
    EXPECT_EQ(ranges[0].bytes, 700u);
    EXPECT_EQ(ranges[1].base, 2000u);
  }));
}

TEST_F(GraphBlocksTest, EqualGraphsHaveEqualSignatures) {
  for (const uintptr_t graph : {1, 2}) {
    Make(graph);
    Add(graph, 1000);
  }
  Instantiate(1, 1);
  Instantiate(2, 2);
  Add(2, 2000);
  Instantiate(3, 2);
  Named(1);
  const uint64_t first = signature_;
  Named(2);
  EXPECT_EQ(signature_, first);
  Named(3);
  EXPECT_NE(signature_ & 0xffff, first & 0xffff);
}

TEST_F(GraphBlocksTest, AnExecutableGraphOutlivesItsGraph) {
  Make(1);
  Make(2);
  Add(1, 1000);
  graphs_.Include(Graph(2), Graph(1));
  Instantiate(1, 2);
  graphs_.DropGraph(Graph(1));
  graphs_.DropGraph(Graph(2));
  EXPECT_THAT(Named(1), Optional(ElementsAre(1000)));
  graphs_.DropExec(Exec(1));
  EXPECT_EQ(Named(1), std::nullopt);
}

TEST_F(GraphBlocksTest, AnUpdateEndsTheParametersOfNodes) {
  Make(1);
  Make(2);
  Add(1, 1000);
  Add(2, 2000);
  Instantiate(1, 1);
  graphs_.SetNode(Exec(1), Node(1), Range(3000));
  graphs_.SetNode(Exec(1), Node(1), Range(4000));
  EXPECT_THAT(Named(1), Optional(ElementsAre(1000, 4000)));
  graphs_.SetChild(Exec(1), Node(2), Graph(2));
  EXPECT_THAT(Named(1), Optional(ElementsAre(1000, 2000, 4000)));
  graphs_.Update(Exec(1), Graph(2));
  EXPECT_THAT(Named(1), Optional(ElementsAre(2000)));
}

TEST_F(GraphBlocksTest, WhatIsNotKnownStaysSo) {
  EXPECT_EQ(NamedByGraph(5), std::nullopt) << "a graph that nobody saw being made";
  graphs_.SetNode(Exec(1), Node(1), Range(1000));
  EXPECT_EQ(Named(1), std::nullopt);
  Make(1);
  graphs_.Include(Graph(1), Graph(5));
  EXPECT_EQ(NamedByGraph(1), std::nullopt);
  Make(2);
  Instantiate(2, 2);
  EXPECT_THAT(Named(2), Optional(IsEmpty()));
  graphs_.SetChild(Exec(2), Node(1), Graph(1));
  EXPECT_EQ(Named(2), std::nullopt);
  graphs_.AddExecToCapture(7, Exec(3));
  graphs_.EndCapture(7, Graph(3));
  EXPECT_EQ(NamedByGraph(3), std::nullopt);
  graphs_.Include(Graph(6),
                  Graph(2));  // under capture: its handle was given out, and what was put in is pinned
  graphs_.EndCapture(8, Graph(6));
  EXPECT_THAT(NamedByGraph(6), Optional(IsEmpty()));
}

TEST_F(GraphBlocksTest, WhatABodyNamesIsTheGraphs) {
  Make(1);
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.AddBody(Graph(2), Node(2), Graph(3));  // a condition inside a body
  Add(2, 1000);
  graphs_.CaptureInto(7, Graph(3));
  EXPECT_TRUE(graphs_.Follows(uint64_t{7}));
  graphs_.AddToCapture(7, Range(2000));
  graphs_.EndCapture(7, Graph(3));
  Make(4);
  graphs_.Include(Graph(4), Graph(1));
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000, 2000)));
  graphs_.DropGraph(Graph(1));
  EXPECT_THAT(NamedByGraph(4), Optional(ElementsAre(1000, 2000)));
  EXPECT_EQ(NamedByGraph(3), std::nullopt) << "it went with the graph";
}

TEST_F(GraphBlocksTest, AnUpdateTakesTheBodiesAlong) {
  Make(1);
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  Instantiate(1, 1);
  Add(2, 1000);  // after the executable graph was made
  EXPECT_THAT(Named(1), Optional(IsEmpty()));
  graphs_.Update(Exec(1), Graph(1));
  EXPECT_THAT(Named(1), Optional(ElementsAre(1000)));
}

TEST_F(GraphBlocksTest, TheHandleOfABodyThatIsGoneMayComeBack) {
  Make(1);
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.AddBody(Graph(2), Node(2), Graph(3));
  Add(2, 1000);
  Add(3, 2000);
  graphs_.DropNode(Node(1));
  graphs_.DropNode(Node(1));
  Make(2);
  Make(3);
  Add(2, 3000);
  Add(3, 4000);
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000, 2000)));
  graphs_.DropGraph(Graph(1));
  EXPECT_THAT(NamedByGraph(2), Optional(ElementsAre(3000)));
  EXPECT_THAT(NamedByGraph(3), Optional(ElementsAre(4000)));
}

// Nobody told that its node went, and the graph with it.
TEST_F(GraphBlocksTest, AHandleThatComesBackUnseenIsNobodysBody) {
  Make(1);
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  Make(2);
  Add(2, 1000);
  EXPECT_THAT(NamedByGraph(1), Optional(IsEmpty()));
  graphs_.DropGraph(Graph(1));
  EXPECT_THAT(NamedByGraph(2), Optional(ElementsAre(1000)));
}

TEST_F(GraphBlocksTest, TheGraphOfAnUnknownNodeIsNotFollowed) {
  Make(1);
  graphs_.AddBody(Graph(1), Node(1), Graph(2));
  graphs_.RecordInner(Graph(2));
  EXPECT_TRUE(graphs_.Follows(Graph(2))) << "a body that is known";
  graphs_.RecordInner(Graph(3));
  EXPECT_FALSE(graphs_.Follows(Graph(3)));
  graphs_.CaptureInto(7, Graph(3));
  EXPECT_FALSE(graphs_.Follows(uint64_t{7}));
  graphs_.EndCapture(7, Graph(3));
  EXPECT_FALSE(graphs_.Follows(Graph(3)));
  graphs_.AddBody(Graph(3), Node(2), Graph(4));
  EXPECT_FALSE(graphs_.Follows(Graph(4)));
  EXPECT_EQ(NamedByGraph(3), std::nullopt);
  graphs_.LoseCapture(8);
  EXPECT_TRUE(graphs_.Follows(uint64_t{9}));
  EXPECT_FALSE(graphs_.Follows(uint64_t{8}));
  // The handle comes back for a graph of its own.
  graphs_.EndCapture(9, Graph(3));
  EXPECT_TRUE(graphs_.Follows(Graph(3)));
  EXPECT_THAT(NamedByGraph(3), Optional(IsEmpty()));
}

TEST_F(GraphBlocksTest, OnceACaptureWithoutAnIdIsLostNoneIsFollowed) {
  Make(1);
  graphs_.CaptureInto(0, Graph(1));
  EXPECT_FALSE(graphs_.Follows(uint64_t{7}));
  graphs_.EndCapture(0, nullptr);
  EXPECT_FALSE(graphs_.Follows(uint64_t{7}));
  EXPECT_TRUE(graphs_.Follows(Graph(1)));
}

TEST_F(GraphBlocksTest, ARecaptureReplacesWhatWasNamedOnceItHasSucceeded) {
  Make(1);
  Add(1, 1000);
  graphs_.Recapture(7, Graph(1));
  graphs_.AddToCapture(7, Range(2000));
  graphs_.EndCapture(7, nullptr);
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000)));
  graphs_.Recapture(8, Graph(1));
  graphs_.AddToCapture(8, Range(3000));
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000)));
  graphs_.EndCapture(8, Graph(1));
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(3000)));
}

// Of a capture whose stream is destroyed nobody sees the end.
TEST_F(GraphBlocksTest, ARecaptureAfterOneThatEndedUnseenKeepsAll) {
  Make(1);
  Add(1, 1000);
  graphs_.Recapture(7, Graph(1));
  Add(1, 2000);
  graphs_.Recapture(8, Graph(1));
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000, 2000)));
  graphs_.EndCapture(8, nullptr);
  EXPECT_THAT(NamedByGraph(1), Optional(ElementsAre(1000, 2000)));
}

TEST_F(GraphBlocksTest, WhatTheDeviceLaunchesIsRemembered) {
  Make(1);
  graphs_.Instantiate(Exec(1), Graph(1), /*by_device=*/true);
  EXPECT_TRUE(graphs_.LaunchedByDevice(Exec(1)));
  Instantiate(1, 1);
  EXPECT_FALSE(graphs_.LaunchedByDevice(Exec(1))) << "another one of that handle";
  EXPECT_FALSE(graphs_.LaunchedByDevice(Exec(2)));
}

}  // namespace
}  // namespace spillway::integration
