#include "integration/escape/graph_pins.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {
namespace {

using allocator::StreamRef;

bool Same(const StreamRef& a, const StreamRef& b) { return a.Explicit() == b.Explicit(); }

void AddStream(std::vector<StreamRef>* streams, const StreamRef& stream) {
  const auto same = [&](const StreamRef& other) { return Same(other, stream); };
  if (std::none_of(streams->begin(), streams->end(), same)) streams->push_back(stream);
}

}  // namespace

// Gives up one owner's share of the pins; those without another owner end.
void GraphPins::Release(List list, const std::vector<StreamRef>& streams, Ended* ended) {
  for (std::shared_ptr<Pins>& pins : list) {
    for (const StreamRef& stream : streams) AddStream(&pins->users.streams, stream);
    if (pins.use_count() == 1) ended->emplace_back(std::move(pins->ticket), std::move(pins->users));
    pins.reset();  // a child that was put in twice is in the list twice
  }
}

void GraphPins::AddToCapture(uint64_t capture, PinTicket ticket) {
  if (ticket.blocks.empty()) return;
  os::MutexLock lock(&mu_);
  captures_[capture].push_back(std::make_shared<Pins>(Pins{std::move(ticket), {}}));
}

void GraphPins::EndCapture(uint64_t capture, CUgraph graph, Ended* ended) {
  os::MutexLock lock(&mu_);
  if (const auto again = recaptures_.extract(capture); !again.empty()) {
    Graph& entry = graphs_[again.mapped()];
    List before = std::exchange(entry.before, {});
    if (graph != nullptr) {
      Release(std::move(before), {}, ended);
    } else {
      entry.pins.insert(entry.pins.end(), before.begin(), before.end());
    }
  }
  const bool is_new = captures_into_.erase(capture) == 0;
  auto node = captures_.extract(capture);
  if (node.empty()) return;
  if (graph == nullptr) {
    Release(std::move(node.mapped()), {}, ended);
    return;
  }
  Graph& entry = graphs_[graph];
  entry.inner &= !is_new;
  if (entry.inner) return;  // these pins last until their blocks are freed
  entry.pins.insert(entry.pins.end(), node.mapped().begin(), node.mapped().end());
}

void GraphPins::AddExecToCapture(uint64_t capture, CUgraphExec exec) {
  os::MutexLock lock(&mu_);
  const auto it = execs_.find(exec);
  if (it == execs_.end()) return;
  List& list = captures_[capture];
  const auto add = [&](const List& part) { list.insert(list.end(), part.begin(), part.end()); };
  add(it->second.pins);
  for (const auto& [node, own] : it->second.nodes) add(own);
}

void GraphPins::NoteCaptureInto(uint64_t capture) {
  os::MutexLock lock(&mu_);
  captures_into_.insert(capture);
}

void GraphPins::Recapture(uint64_t capture, CUgraph graph) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return;
  recaptures_[capture] = graph;
  // A recapture that ended unseen has left some.
  List& before = it->second.before;
  before.insert(before.end(), it->second.pins.begin(), it->second.pins.end());
  it->second.pins.clear();
}

void GraphPins::NoteMade(CUgraph graph) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it != graphs_.end()) it->second.inner = false;
}

void GraphPins::AddToGraph(CUgraph graph, PinTicket ticket) {
  if (ticket.blocks.empty()) return;
  os::MutexLock lock(&mu_);
  Graph& entry = graphs_[graph];
  if (!entry.inner) entry.pins.push_back(std::make_shared<Pins>(Pins{std::move(ticket), {}}));
}

void GraphPins::AddBody(CUgraph graph, CUgraphNode node, CUgraph body) {
  if (graph == body || body == nullptr) return;
  os::MutexLock lock(&mu_);
  Node& owner = owners_[node];
  if (owner.graph != graph) owner = {graph, {}};  // a handle that came back
  owner.bodies.push_back(body);
  graphs_[graph].bodies.push_back(body);
  graphs_[body].inner = false;
}

void GraphPins::NoteInner(CUgraph graph) {
  os::MutexLock lock(&mu_);
  graphs_.try_emplace(graph, Graph{{}, {}, {}, true});
}

void GraphPins::DropNode(CUgraphNode node) {
  os::MutexLock lock(&mu_);
  const auto owner = owners_.extract(node);
  if (owner.empty()) return;
  const auto graph = graphs_.find(owner.mapped().graph);
  for (const CUgraph body : owner.mapped().bodies) {
    List list;
    CollectLocked(body, &list);
    Ended none;  // the list keeps them all
    DropGraphLocked(body, &none);
    if (graph == graphs_.end()) continue;
    graph->second.pins.insert(graph->second.pins.end(), list.begin(), list.end());
    std::erase(graph->second.bodies, body);
  }
}

void GraphPins::CollectLocked(CUgraph graph, List* list) const {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return;
  list->insert(list->end(), it->second.pins.begin(), it->second.pins.end());
  list->insert(list->end(), it->second.before.begin(), it->second.before.end());
  for (const CUgraph body : it->second.bodies) CollectLocked(body, list);
}

void GraphPins::Include(CUgraph graph, CUgraph part) {
  os::MutexLock lock(&mu_);
  if (graph == part) return;
  List shared;
  CollectLocked(part, &shared);
  if (shared.empty()) return;
  List& list = graphs_[graph].pins;
  list.insert(list.end(), shared.begin(), shared.end());
}

void GraphPins::DropGraph(CUgraph graph, Ended* ended) {
  os::MutexLock lock(&mu_);
  DropGraphLocked(graph, ended);
}

void GraphPins::DropGraphLocked(CUgraph graph, Ended* ended) {
  auto node = graphs_.extract(graph);
  if (node.empty()) return;
  Release(std::move(node.mapped().pins), {}, ended);
  Release(std::move(node.mapped().before), {}, ended);
  if (node.mapped().bodies.empty()) return;
  std::erase_if(owners_, [graph](const auto& owner) { return owner.second.graph == graph; });
  for (const CUgraph body : node.mapped().bodies) DropGraphLocked(body, ended);
}

void GraphPins::Instantiate(CUgraphExec exec, CUgraph graph, Ended* ended) {
  DropExec(exec, ended);  // a handle that came back
  os::MutexLock lock(&mu_);
  List list;
  CollectLocked(graph, &list);
  if (!list.empty()) execs_[exec].pins = std::move(list);
}

void GraphPins::Update(CUgraphExec exec, CUgraph graph, Ended* ended) {
  os::MutexLock lock(&mu_);
  List list;
  CollectLocked(graph, &list);
  Exec& kept = execs_[exec];
  std::swap(kept.pins, list);
  Release(std::move(list), kept.streams, ended);
  for (auto& [node, own] : kept.nodes) Release(std::move(own), kept.streams, ended);
  kept.nodes.clear();
}

void GraphPins::SetNode(CUgraphExec exec, CUgraphNode node, PinTicket ticket, Ended* ended) {
  os::MutexLock lock(&mu_);
  Exec& kept = execs_[exec];
  List list;
  if (!ticket.blocks.empty()) list.push_back(std::make_shared<Pins>(Pins{std::move(ticket), {}}));
  std::swap(kept.nodes[node], list);
  Release(std::move(list), kept.streams, ended);
}

void GraphPins::SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child, Ended* ended) {
  os::MutexLock lock(&mu_);
  List list;
  CollectLocked(child, &list);
  Exec& kept = execs_[exec];
  std::swap(kept.nodes[node], list);
  Release(std::move(list), kept.streams, ended);
}

void GraphPins::NoteLaunch(CUgraphExec exec, StreamRef stream) {
  os::MutexLock lock(&mu_);
  const auto it = execs_.find(exec);
  if (it != execs_.end()) AddStream(&it->second.streams, stream);
}

void GraphPins::DropExec(CUgraphExec exec, Ended* ended) {
  os::MutexLock lock(&mu_);
  auto node = execs_.extract(exec);
  if (node.empty()) return;
  Exec& dropped = node.mapped();
  Release(std::move(dropped.pins), dropped.streams, ended);
  for (auto& [graph_node, own] : dropped.nodes) Release(std::move(own), dropped.streams, ended);
}

void GraphPins::ForgetStream(CUstream stream, std::vector<PinTicket>* launched) {
  const StreamRef gone{stream, false};
  const auto same = [&](const StreamRef& other) { return Same(other, gone); };
  os::MutexLock lock(&mu_);
  for (auto& [exec, kept] : execs_) {
    const bool ran = std::erase_if(kept.streams, same) != 0;
    const auto visit = [&](const List& list) {
      for (const std::shared_ptr<Pins>& pins : list) {
        if (std::erase_if(pins->users.streams, same) + ran != 0) launched->push_back(pins->ticket);
      }
    };
    visit(kept.pins);
    for (const auto& [node, own] : kept.nodes) visit(own);
  }
  for (auto& [graph, entry] : graphs_) {
    for (const List* list : {&entry.pins, &entry.before}) {
      for (const std::shared_ptr<Pins>& pins : *list) {
        if (std::erase_if(pins->users.streams, same) != 0) launched->push_back(pins->ticket);
      }
    }
  }
}

}  // namespace spillway::integration
