// The message with which Charges refuses a block: the term that is short, by how much, and what would help.

#include <algorithm>
#include <string>

#include "allocator/residency/state/charges.h"

namespace spillway::allocator {
namespace {

// The exact number, so that the sums in a text add up as they are written.
std::string Exactly(uint64_t bytes) {
  const bool whole = bytes % (1 << 20) == 0;
  return std::to_string(bytes >> (whole ? 20 : 10)) + (whole ? " MiB" : " KiB");
}

}  // namespace

std::string Charges::OnGpuText(const Charge& charge) const {
  const uint64_t all = budget_.Budget() + budget_.Reserve();
  std::string text = Exactly(charge.chunk_target) + " of GPU memory (" +
                     (Capped()                         ? "a limit of "
                      : budget_.share < budget_.budget ? "a share of "
                                                       : "a budget of ") +
                     Exactly(budget_.Budget());
  if (budget_.Reserve() > 0) text += " and a reserve of " + Exactly(budget_.Reserve());
  uint64_t less = all - std::min(all, charge.chunk_target);
  const uint64_t external = std::min(less, budget_.external + budget_.external_coming);
  if (external > 0) text += ", less " + Exactly(external) + " of other memory of this process";
  less -= external;
  if (less >= chunk_bytes_) {
    text +=
        std::string(external > 0 ? " and " : ", less ") + Exactly(less) + " that the GPU does not have now";
  } else if (less > 0) {
    text += ", in whole chunks of " + Exactly(chunk_bytes_);
  }
  return text + ")";
}

absl::Status Charges::RefusalOf(Charge charge, uint64_t promised_elsewhere) const {
  // Memory that could be lent counts as present.
  const auto whole = [this](uint64_t bytes) { return bytes / chunk_bytes_ * chunk_bytes_; };
  charge.chunk_target += whole(budget_.MostTarget()) - whole(budget_.ChunkTarget());
  const std::string on_gpu = OnGpuText(charge);
  std::string raise = " too little. To do: ";
  // A budget with a reserve is all that the GPU had, and the budget of a shared GPU is what the GPU has for
  // all jobs: raising either would not help.
  if (Capped() || (budget_.reserve == 0 && share_ == nullptr))
    raise += std::string("raise ") +
             (Capped() ? "the job's limit (set_per_process_memory_fraction, set_gpu_memory)"
                       : "SPILLWAY_GPU_MEMORY") +
             " by that, or ";
  raise += "make the batch smaller";
  if (!evict_->load()) {
    return absl::ResourceExhaustedError(
        "GPU memory is short: " + Exactly(charge.live) +
        " of blocks would be live, nothing is moved off the GPU, and there are " + on_gpu +
        " for them: " + Exactly(charge.live - std::min(charge.live, charge.chunk_target)) + raise);
  }
  if (!charge.LaunchFits()) {
    const bool block = charge.largest_block >= charge.largest_set;
    std::string text = "GPU memory is short for one launch: ";
    text += block ? "a block of " + Exactly(charge.largest_block)
                  : "the blocks that one launch names, together " + Exactly(charge.largest_set) + ",";
    text += " must be on the GPU at once";
    if (charge.pinned > 0) text += " beside " + Exactly(charge.pinned) + " of blocks that must stay";
    text += ", and there are " + on_gpu + ": " +
            Exactly(charge.pinned + charge.LargestLaunch() - charge.chunk_target) + raise;
    return absl::ResourceExhaustedError(text);
  }
  return absl::ResourceExhaustedError(CapacityText(charge, promised_elsewhere));
}

std::string Charges::CapacityText(const Charge& charge, uint64_t promised_elsewhere) const {
  const uint64_t host = capacity_->host_bytes(), disk = capacity_->disk_bytes();
  const uint64_t needed = charge.live + charge.Headroom() + promised_elsewhere;
  const uint64_t there = charge.chunk_target + host + disk;
  std::string text = "capacity off the GPU is short: " + Exactly(charge.live) + " of blocks would be live";
  text += ", " + Exactly(charge.Headroom()) +
          " must stay free to exchange them (the largest launch and the largest block)";
  if (promised_elsewhere > 0) text += ", " + Exactly(promised_elsewhere) + " are for blocks of other GPUs";
  text += "; that is " + Exactly(needed) + ", and there are " + OnGpuText(charge) + ", " + Exactly(host) +
          " of host memory and " + Exactly(disk) + " on disk, " + Exactly(there) + " in all";
  // Capacity has come free since the charge was refused.
  if (needed <= there) return text + ". To do: try again";
  text += ": " + Exactly(needed - there) + " too little. To do: ";
  if (!capacity_->has_disk()) return text + "a SPILLWAY_HOST_MEMORY that gives this process that much more";
  return text + "let the spill files in SPILLWAY_DIRS grow by that much";
}

}  // namespace spillway::allocator
