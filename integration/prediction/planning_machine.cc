#include "integration/prediction/planning_machine.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "integration/prediction/trace_recorder.h"

namespace spillway::integration {
namespace {

// Fills in the rates that were not measured yet. The rates of both directions together go with those of each
// alone.
void AddKnownRates(const KnownRates& known, bool wrote, policy::Machine* machine) {
  if (!(machine->pcie_in > 0) && !(machine->pcie_out > 0))
    machine->pcie_both = {known.host_in_both, known.host_out_both};
  const auto add = [](double rate, double* target) {
    if (!(*target > 0)) *target = rate;
  };
  add(known.host_in, &machine->pcie_in);
  add(known.host_out, &machine->pcie_out);
  add(known.disk_in, &machine->ssd_read);
  if (wrote || !(known.disk_out > 0)) return;
  // A write budget that is spent bounds it already.
  machine->ssd_write = machine->ssd_write > 0 ? std::min(machine->ssd_write, known.disk_out) : known.disk_out;
}

void ScaleRates(double factor, policy::Machine* machine) {
  for (double* const rate : {&machine->pcie_in, &machine->pcie_out, &machine->pcie_both.in,
                             &machine->pcie_both.out, &machine->ssd_read, &machine->ssd_write})
    *rate *= factor;
}

}  // namespace

policy::RuntimeMachine PlanningMachine::Now(const allocator::Residency* residency, policy::SequenceId id,
                                            const policy::Trace& sequence, const policy::BlockSizes& sizes,
                                            const policy::BlockSizes& copied) {
  policy::RuntimeMachine machine;
  if (residency != nullptr) {
    const allocator::MachineStats metrics = residency->Machine();
    const uint64_t beside = PinnedBeside(*residency, metrics.pinned_bytes, id, sequence);
    machine.machine.gpu_bytes = metrics.chunk_target_bytes - std::min(metrics.chunk_target_bytes, beside);
    machine.machine.pcie_in = metrics.host_in_rate;
    machine.machine.pcie_out = metrics.host_out_rate;
    machine.machine.pcie_both = {metrics.host_in_both_rate, metrics.host_out_both_rate};
    machine.machine.ssd_read = metrics.disk_in_rate;
    machine.machine.ssd_write = metrics.BoundedDiskOutRate();
    AddKnownRates(known_, metrics.disk_out_rate > 0, &machine.machine);
    ScaleRates(ChunksToCopied(id, sequence, sizes, copied), &machine.machine);
  }
  if (host_bytes_) machine.machine.host_bytes = host_bytes_();
  machine.has_disk = has_disk_;
  machine.run_ahead = policy::RunAhead();
  return machine;
}

double PlanningMachine::ChunksToCopied(policy::SequenceId id, const policy::Trace& sequence,
                                       const policy::BlockSizes& sizes, const policy::BlockSizes& copied) {
  if (id != policy::kNoSequence && id == sized_) return chunks_to_copied_;
  sized_ = id;
  std::unordered_set<policy::TraceBlock> blocks;
  for (policy::LaunchIndex i = sequence.begin(); i < sequence.end(); ++i)
    blocks.insert(sequence.at(i).blocks.begin(), sequence.at(i).blocks.end());
  policy::Bytes chunks = 0, moved = 0;
  for (const policy::TraceBlock block : blocks) {
    const auto size = sizes.find(block), copy = copied.find(block);
    if (size == sizes.end() || copy == copied.end() || copy->second <= 0) continue;
    chunks += size->second;
    moved += std::min(size->second, copy->second);
  }
  return chunks_to_copied_ = moved > 0 ? static_cast<double>(chunks) / static_cast<double>(moved) : 1;
}

uint64_t PlanningMachine::PinnedBeside(const allocator::Residency& residency, uint64_t pinned_bytes,
                                       policy::SequenceId id, const policy::Trace& sequence) {
  if (pinned_bytes == 0) return pinned_bytes_ = 0;
  if (pinned_bytes == pinned_bytes_ && id == searched_) return beside_bytes_;
  pinned_bytes_ = pinned_bytes;
  searched_ = id;
  std::unordered_map<policy::TraceBlock, uint64_t> pinned;
  for (const allocator::BlockBytes& block : residency.PinnedBlocks())
    pinned[TraceBlockOf(block.id)] = block.bytes;
  for (policy::LaunchIndex i = sequence.begin(); i < sequence.end() && !pinned.empty(); ++i)
    for (const policy::TraceBlock block : sequence.at(i).blocks) pinned.erase(block);
  beside_bytes_ = 0;
  for (const auto& [block, bytes] : pinned) beside_bytes_ += bytes;
  return beside_bytes_;
}

}  // namespace spillway::integration
