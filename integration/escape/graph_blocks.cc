#include "integration/escape/graph_blocks.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {

void GraphBlocks::Named::Add(const Ranges& more) {
  for (const Range& range : more) {
    uint64_t& bytes = ranges[range.base];
    bytes = std::max(bytes, range.bytes);
  }
}

void GraphBlocks::Named::Add(const Named& other) {
  for (const auto& [base, size] : other.ranges) {
    uint64_t& bytes = ranges[base];
    bytes = std::max(bytes, size);
  }
  known &= other.known;
}

void GraphBlocks::Exec::Sum() {
  summed = true;
  Named sum = named;
  for (const auto& [node, own] : nodes) sum.Add(own);
  known = sum.known;
  all.clear();
  signature = 0xcbf29ce484222325;  // FNV-1a over words
  for (const auto& [base, bytes] : sum.ranges) {
    all.push_back({base, bytes});
    signature = (signature ^ base) * 0x100000001b3;
    signature = (signature ^ bytes) * 0x100000001b3;
  }
  signature ^= signature >> 32;  // the words are multiples of a chunk, so their low bits say little
}

// ---- Captures.

bool GraphBlocks::Follows(uint64_t capture) const {
  os::MutexLock lock(&mu_);
  return capture != 0 && !lost_captures_.contains(capture) && !lost_captures_.contains(0);
}

void GraphBlocks::LoseCapture(uint64_t capture) {
  os::MutexLock lock(&mu_);
  lost_captures_.insert(capture);
}

void GraphBlocks::AddToCapture(uint64_t capture, const Ranges& ranges) {
  if (ranges.empty()) return;
  os::MutexLock lock(&mu_);
  captures_[capture].Add(ranges);
}

void GraphBlocks::AddExecToCapture(uint64_t capture, CUgraphExec exec) {
  os::MutexLock lock(&mu_);
  Named& named = captures_[capture];
  const auto it = execs_.find(exec);
  if (it == execs_.end()) {
    named.known = false;
    return;
  }
  named.Add(it->second.named);
  for (const auto& [node, own] : it->second.nodes) named.Add(own);
}

void GraphBlocks::CaptureInto(uint64_t capture, CUgraph graph) {
  os::MutexLock lock(&mu_);
  captures_into_.insert(capture);
  if (capture == 0 || !FollowsLocked(graph)) lost_captures_.insert(capture);
}

void GraphBlocks::Recapture(uint64_t capture, CUgraph graph) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (capture == 0 || it == graphs_.end()) return;
  recaptures_[capture] = graph;
  it->second.before.Add(std::exchange(it->second.named, {}));  // a recapture that ended unseen left some
}

void GraphBlocks::EndCapture(uint64_t capture, CUgraph graph) {
  os::MutexLock lock(&mu_);
  if (const auto again = recaptures_.extract(capture); !again.empty()) {
    Graph& entry = graphs_[again.mapped()];
    const Named before = std::exchange(entry.before, {});
    if (graph == nullptr) entry.named.Add(before);
  }
  if (capture != 0) lost_captures_.erase(capture);
  const bool is_new = captures_into_.erase(capture) == 0;
  const auto node = captures_.extract(capture);
  if (graph == nullptr) return;
  // No entry is cleared: nodes may have been added by hand before to a capture that the driver made by
  // itself.
  Graph& entry = graphs_[graph];
  entry.inner &= !is_new;
  if (!node.empty()) entry.named.Add(node.mapped());
  if (capture == 0) entry.named.known = false;  // its nodes were recorded under an id that is not given
}

// ---- Graphs.

bool GraphBlocks::FollowsLocked(CUgraph graph) const {
  const auto it = graphs_.find(graph);
  return it != graphs_.end() && !it->second.inner;
}

bool GraphBlocks::Follows(CUgraph graph) const {
  os::MutexLock lock(&mu_);
  return FollowsLocked(graph);
}

void GraphBlocks::RecordMade(CUgraph graph) {
  os::MutexLock lock(&mu_);
  const auto [it, is_new] = graphs_.try_emplace(graph);
  if (is_new) return;
  it->second = {};
  for (auto& [other, entry] : graphs_) std::erase(entry.bodies, graph);
  for (auto& [node, owner] : owners_) std::erase(owner.bodies, graph);
}

void GraphBlocks::AddToGraph(CUgraph graph, const Ranges& ranges) {
  if (ranges.empty()) return;
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it != graphs_.end()) it->second.named.Add(ranges);
}

void GraphBlocks::AddBody(CUgraph graph, CUgraphNode node, CUgraph body) {
  if (graph == body || body == nullptr) return;
  os::MutexLock lock(&mu_);
  if (!FollowsLocked(graph)) {
    graphs_[body].inner = true;
    return;
  }
  Node& owner = owners_[node];
  if (owner.graph != graph) owner = {graph, {}};  // the handle has come back for another node
  owner.bodies.push_back(body);
  graphs_[graph].bodies.push_back(body);
  graphs_[body].inner = false;
}

void GraphBlocks::RecordInner(CUgraph graph) {
  os::MutexLock lock(&mu_);
  graphs_.try_emplace(graph, Graph{{}, {}, {}, true});
}

void GraphBlocks::DropNode(CUgraphNode node) {
  os::MutexLock lock(&mu_);
  const auto owner = owners_.extract(node);
  if (owner.empty()) return;
  const auto graph = graphs_.find(owner.mapped().graph);
  for (const CUgraph body : owner.mapped().bodies) {
    const Named named = CollectLocked(body);
    DropGraphLocked(body);
    if (graph == graphs_.end()) continue;
    graph->second.named.Add(named);
    std::erase(graph->second.bodies, body);
  }
}

GraphBlocks::Named GraphBlocks::CollectLocked(CUgraph graph) const {
  const auto it = graphs_.find(graph);
  Named named;
  named.known = FollowsLocked(graph);
  if (it == graphs_.end()) return named;
  named.Add(it->second.named);
  named.Add(it->second.before);
  for (const CUgraph body : it->second.bodies) named.Add(CollectLocked(body));
  return named;
}

void GraphBlocks::Include(CUgraph graph, CUgraph part) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (graph != part && it != graphs_.end()) it->second.named.Add(CollectLocked(part));
}

void GraphBlocks::DropGraph(CUgraph graph) {
  os::MutexLock lock(&mu_);
  DropGraphLocked(graph);
}

void GraphBlocks::DropGraphLocked(CUgraph graph) {
  const auto node = graphs_.extract(graph);
  if (node.empty() || node.mapped().bodies.empty()) return;
  std::erase_if(owners_, [graph](const auto& owner) { return owner.second.graph == graph; });
  for (const CUgraph body : node.mapped().bodies) DropGraphLocked(body);
}

GraphBlocks::Ranges GraphBlocks::BlocksOf(CUgraph graph) const {
  Ranges ranges;
  os::MutexLock lock(&mu_);
  for (const auto& [base, bytes] : CollectLocked(graph).ranges) ranges.push_back({base, bytes});
  return ranges;
}

// ---- Executable graphs.

GraphBlocks::Exec& GraphBlocks::ExecLocked(CUgraphExec exec) {
  const auto [it, is_new] = execs_.try_emplace(exec);
  if (is_new) it->second.named.known = false;
  return it->second;
}

void GraphBlocks::Instantiate(CUgraphExec exec, CUgraph graph, bool by_device) {
  os::MutexLock lock(&mu_);
  Exec& made = execs_[exec];
  made = {};  // drops what an earlier graph with this handle named
  made.named = CollectLocked(graph);
  made.by_device = by_device;
}

void GraphBlocks::Update(CUgraphExec exec, CUgraph graph) {
  os::MutexLock lock(&mu_);
  Exec& updated = ExecLocked(exec);
  updated.named = CollectLocked(graph);
  updated.nodes.clear();
  updated.summed = false;
}

void GraphBlocks::SetNode(CUgraphExec exec, CUgraphNode node, const Ranges& ranges) {
  os::MutexLock lock(&mu_);
  Exec& changed = ExecLocked(exec);
  Named named;
  named.Add(ranges);
  changed.nodes[node] = std::move(named);
  changed.summed = false;
}

void GraphBlocks::SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  os::MutexLock lock(&mu_);
  Exec& changed = ExecLocked(exec);
  changed.nodes[node] = CollectLocked(child);
  changed.summed = false;
}

bool GraphBlocks::LaunchedByDevice(CUgraphExec exec) const {
  os::MutexLock lock(&mu_);
  const auto it = execs_.find(exec);
  return it != execs_.end() && it->second.by_device;
}

bool GraphBlocks::Visit(CUgraphExec exec, absl::FunctionRef<void(const Ranges&, uint64_t)> visit) {
  os::MutexLock lock(&mu_);
  const auto it = execs_.find(exec);
  if (it == execs_.end()) return false;
  if (!it->second.summed) it->second.Sum();
  if (!it->second.known) return false;
  visit(it->second.all, it->second.signature);
  return true;
}

void GraphBlocks::DropExec(CUgraphExec exec) {
  os::MutexLock lock(&mu_);
  execs_.erase(exec);
}

}  // namespace spillway::integration
