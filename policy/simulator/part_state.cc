#include "policy/simulator/part_state.h"

#include <algorithm>

#include "policy/model/transfer_plan.h"

namespace spillway::policy {
namespace {

constexpr size_t Index(Place place) { return static_cast<size_t>(place); }

}  // namespace

PartState::PartState(const Workload& workload, Bytes piece_bytes, Bytes move_bytes,
                     std::vector<std::vector<uint32_t>> cuts)
    : tensors(workload.tensors.size()), workload_(workload) {
  const uint32_t most =
      piece_bytes == 0 ? 1 : static_cast<uint32_t>(std::max<Bytes>(1, move_bytes / piece_bytes));
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const Bytes bytes = workload.tensors[t].bytes;
    auto& list = cuts[t];
    list.push_back(0);
    list.push_back(PiecesOf(bytes, piece_bytes));
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    tensors[t].first_part = static_cast<uint32_t>(parts.size());
    for (size_t c = 0; c + 1 < list.size(); ++c) {
      for (uint32_t first = list[c]; first < list[c + 1]; first += most) {
        ExecutionPart part;
        part.tensor = t;
        part.first_piece = first;
        part.last_piece = std::min(first + most, list[c + 1]);
        part.bytes = BytesOfPieces(bytes, piece_bytes, part.first_piece, part.last_piece);
        parts.push_back(part);
      }
    }
    tensors[t].last_part = static_cast<uint32_t>(parts.size());
  }
}

bool PartState::InputsReady(const WorkloadKernel& kernel) const {
  return std::ranges::all_of(kernel.inputs, [this](uint32_t t) { return !tensors[t].live || AllOnGpu(t); });
}

Bytes PartState::SpaceFor(const WorkloadKernel& kernel) const {
  Bytes bytes = kernel.workspace_bytes;
  for (uint32_t t : kernel.outputs) {
    if (!tensors[t].live || !Names(kernel.inputs, t)) bytes += LackOnGpu(t);
  }
  for (uint32_t t : kernel.inputs) {
    if (!tensors[t].live && !Names(kernel.outputs, t)) bytes += workload_.tensors[t].bytes;
  }
  return bytes;
}

Bytes PartState::MissingFor(const WorkloadKernel& kernel) const {
  Bytes bytes = 0;
  for (uint32_t t : kernel.inputs) {
    if (tensors[t].live) bytes += LackOnGpu(t);
  }
  return bytes;
}

void PartState::Take(Place place, Bytes bytes) {
  used[Index(place)] += bytes;
  peak[Index(place)] = std::max(peak[Index(place)], used[Index(place)]);
}

void PartState::SetValid(uint32_t part, Place place) {
  parts[part].valid[Index(place)] = true;
  if (place == Place::kGpu) ++tensors[parts[part].tensor].parts_on_gpu;
}

void PartState::Put(uint32_t part, Place place) {
  Take(place, parts[part].bytes);
  if (place == Place::kGpu) tensors[parts[part].tensor].taken_on_gpu += parts[part].bytes;
  SetValid(part, place);
}

void PartState::Free(uint32_t part, Place place) {
  ExecutionPart& it = parts[part];
  if (!it.valid[Index(place)]) return;
  it.valid[Index(place)] = false;
  used[Index(place)] -= it.bytes;
  if (place != Place::kGpu) return;
  --tensors[it.tensor].parts_on_gpu;
  tensors[it.tensor].taken_on_gpu -= it.bytes;
}

void PartState::FreeAll(uint32_t tensor, Place place) {
  for (uint32_t p = tensors[tensor].first_part; p < tensors[tensor].last_part; ++p) Free(p, place);
}

Bytes PartState::LackOnGpu(uint32_t tensor) const {
  return workload_.tensors[tensor].bytes - tensors[tensor].taken_on_gpu;
}

void PartState::TakeAllOnGpu(uint32_t tensor) {
  Take(Place::kGpu, LackOnGpu(tensor));
  tensors[tensor].taken_on_gpu = workload_.tensors[tensor].bytes;
}

void PartState::ValidateAllOnGpu(uint32_t tensor) {
  TensorState& state = tensors[tensor];
  for (uint32_t p = state.first_part; p < state.last_part; ++p) parts[p].valid[0] = true;
  state.parts_on_gpu = state.last_part - state.first_part;
}

}  // namespace spillway::policy
