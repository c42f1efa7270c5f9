#include "policy/trace/recorded_workload.h"

#include <algorithm>
#include <unordered_map>

namespace spillway::policy {
namespace {

constexpr Nanos kUnmeasured = 10'000;

// The events and uses of one block over the iteration, in order. An event at a position comes before that
// position's launch.
struct BlockHistory {
  struct Item {
    uint32_t position = 0;
    bool use = false;     // else the block is allocated or freed
    bool writes = false;  // of a use
  };
  Bytes bytes = 0;
  std::vector<Item> items;
};

class BlockHistories {
 public:
  BlockHistories(const Trace& trace, LaunchIndex start, uint32_t iteration_launches, const BlockSizes& sizes,
                 const WriteFacts* facts)
      : sizes_(sizes), facts_(facts) {
    const auto events = trace.events();
    auto event = std::ranges::find_if(events, [start](const BlockEvent& one) { return one.before >= start; });
    for (uint32_t position = 0; position < iteration_launches; ++position) {
      for (; event != events.end() && event->before == start + position; ++event) Add(*event, position);
      const LaunchRecord launch = trace.at(start + position);
      const LaunchForm form{launch.tag, static_cast<uint32_t>(launch.blocks.size())};
      for (uint32_t operand = 0; operand < form.blocks; ++operand)
        AddUse(launch.blocks[operand], position, form, operand);
    }
  }

  // Blocks in order of first mention.
  const std::vector<TraceBlock>& order() const { return order_; }
  const BlockHistory& of(TraceBlock block) const { return histories_.at(block); }

 private:
  BlockHistory& Of(TraceBlock block) {
    const auto [it, is_new] = histories_.try_emplace(block);
    if (is_new) {
      order_.push_back(block);
      const auto size = sizes_.find(block);
      if (size != sizes_.end()) it->second.bytes = size->second;
    }
    return it->second;
  }
  void Add(const BlockEvent& event, uint32_t position) {
    BlockHistory& history = Of(event.block);
    if (history.bytes == 0) history.bytes = event.bytes;
    history.items.push_back({position, false, false});
  }
  void AddUse(TraceBlock block, uint32_t position, LaunchForm form, uint32_t operand) {
    BlockHistory& history = Of(block);
    const bool writes = facts_ == nullptr || facts_->Of(form, operand) != Writes::kNo;
    if (!history.items.empty() && history.items.back().use && history.items.back().position == position) {
      history.items.back().writes |= writes;  // named twice
      return;
    }
    history.items.push_back({position, true, writes});
  }

  const BlockSizes& sizes_;
  const WriteFacts* const facts_;
  std::vector<TraceBlock> order_;
  std::unordered_map<TraceBlock, BlockHistory> histories_;
};

// Turns the histories of blocks into tensors.
class TensorMaker {
 public:
  explicit TensorMaker(RecordedWorkload* recorded) : recorded_(*recorded) {}

  void Add(TraceBlock block, const BlockHistory& history) {
    if (history.bytes == 0) return;
    const auto& items = history.items;
    const auto event = std::ranges::find_if(items, [](const BlockHistory::Item& item) { return !item.use; });
    if (event == items.end()) {
      const uint32_t tensor = NewTensor(block, history.bytes, true);
      for (const BlockHistory::Item& item : items) Name(tensor, item, true, item.writes);
      return;
    }
    // Once round the iteration from that event on. Each event ends the life before it.
    const size_t first = static_cast<size_t>(event - items.begin());
    bool alive = false;
    for (size_t i = 1; i <= items.size(); ++i) {
      const BlockHistory::Item& item = items[(first + i) % items.size()];
      if (!item.use) {
        if (alive) End(item.position);
        alive = false;
        continue;
      }
      if (!alive) {
        const uint32_t tensor = NewTensor(block, history.bytes, false);
        recorded_.workload.tensors[tensor].life = {item.position, item.position};
      }
      Name(static_cast<uint32_t>(recorded_.workload.tensors.size() - 1), item, alive, !alive || item.writes);
      alive = true;
    }
  }

 private:
  uint32_t NewTensor(TraceBlock block, Bytes bytes, bool persistent) {
    recorded_.blocks.push_back(block);
    recorded_.workload.tensors.push_back({bytes, persistent, std::nullopt});
    return static_cast<uint32_t>(recorded_.blocks.size() - 1);
  }
  void Name(uint32_t tensor, const BlockHistory::Item& item, bool reads, bool writes) {
    WorkloadKernel& kernel = recorded_.workload.kernels[item.position];
    if (reads) kernel.inputs.push_back(tensor);
    if (writes) kernel.outputs.push_back(tensor);
  }
  // The latest tensor is freed before the launch at `position`.
  void End(uint32_t position) {
    const auto iteration_launches = static_cast<uint32_t>(recorded_.workload.kernels.size());
    recorded_.workload.tensors.back().life->last = (position + iteration_launches - 1) % iteration_launches;
  }

  RecordedWorkload& recorded_;
};

void AddKernels(const Trace& trace, uint32_t iteration_launches, const BlockSizes& sizes,
                const KernelTimes* times, RecordedWorkload* recorded) {
  const Nanos typical = times != nullptr ? times->Typical() : 0;
  const LaunchIndex start = recorded->start;
  for (uint32_t position = 0; position < iteration_launches; ++position) {
    const LaunchIndex behind = start + (position + 1) % iteration_launches;
    const Nanos duration = times != nullptr ? times->Of(KindAt(trace, start + position, behind, sizes)) : 0;
    if (duration > 0) ++recorded->measured;
    WorkloadKernel kernel;
    kernel.duration = duration > 0 ? duration : typical > 0 ? typical : kUnmeasured;
    recorded->workload.kernels.push_back(std::move(kernel));
  }
}

}  // namespace

RecordedWorkload MakeRecordedWorkload(const Trace& trace, LaunchIndex start, uint32_t iteration_launches,
                                      const BlockSizes& sizes, const KernelTimes* times,
                                      const WriteFacts* facts) {
  RecordedWorkload recorded;
  recorded.start = start;
  AddKernels(trace, iteration_launches, sizes, times, &recorded);
  const BlockHistories histories(trace, start, iteration_launches, sizes, facts);
  TensorMaker maker(&recorded);
  for (const TraceBlock block : histories.order()) maker.Add(block, histories.of(block));
  // Tensors of blocks come in order of first mention, not of position: a life that wraps names early kernels
  // last.
  for (WorkloadKernel& kernel : recorded.workload.kernels) {
    std::ranges::sort(kernel.inputs);
    std::ranges::sort(kernel.outputs);
  }
  return recorded;
}

}  // namespace spillway::policy
