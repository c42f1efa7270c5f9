#include "integration/escape/graph_pins.h"

#include <algorithm>

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
  auto node = captures_.extract(capture);
  if (node.empty()) return;
  if (graph == nullptr) {
    Release(std::move(node.mapped()), {}, ended);
    return;
  }
  List& list = graphs_[graph];
  list.insert(list.end(), node.mapped().begin(), node.mapped().end());
}

void GraphPins::AddToGraph(CUgraph graph, PinTicket ticket) {
  if (ticket.blocks.empty()) return;
  os::MutexLock lock(&mu_);
  graphs_[graph].push_back(std::make_shared<Pins>(Pins{std::move(ticket), {}}));
}

void GraphPins::Include(CUgraph graph, CUgraph part) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(part);
  if (it == graphs_.end() || graph == part) return;
  const List shared = it->second;
  List& list = graphs_[graph];
  list.insert(list.end(), shared.begin(), shared.end());
}

void GraphPins::DropGraph(CUgraph graph, Ended* ended) {
  os::MutexLock lock(&mu_);
  auto node = graphs_.extract(graph);
  if (!node.empty()) Release(std::move(node.mapped()), {}, ended);
}

void GraphPins::Instantiate(CUgraphExec exec, CUgraph graph, Ended* ended) {
  DropExec(exec, ended);  // a handle that came back
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it != graphs_.end()) execs_[exec].pins = it->second;
}

void GraphPins::Update(CUgraphExec exec, CUgraph graph, Ended* ended) {
  os::MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  List list = it == graphs_.end() ? List() : it->second;
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
  const auto it = graphs_.find(child);
  List list = it == graphs_.end() ? List() : it->second;
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
  for (auto& [graph, list] : graphs_) {
    for (const std::shared_ptr<Pins>& pins : list) {
      if (std::erase_if(pins->users.streams, same) != 0) launched->push_back(pins->ticket);
    }
  }
}

}  // namespace spillway::integration
