#include "policy/estimate/device_tape.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::policy {
namespace {

constexpr Bytes kChunk = 2 << 20;

bool Moves(Bytes bytes) { return bytes > kSmallBlock; }
Bytes InChunks(Bytes bytes) { return (bytes + kChunk - 1) / kChunk * kChunk; }

}  // namespace

Bytes BytesOf(NumberType type) {
  switch (type) {
    case NumberType::kFp32: return 4;
    case NumberType::kBf16: return 2;
    case NumberType::kInt64: return 8;
    case NumberType::kBool: return 1;
  }
  return 4;
}

Storage::~Storage() { tape_->Release(id_); }

Tensor DeviceTape::New(uint64_t elements, NumberType type) { return NewAs(elements, type, term_); }

Tensor DeviceTape::NewAs(uint64_t elements, NumberType type, Term term) {
  Block block;
  block.bytes = std::max<Bytes>(1, elements * BytesOf(type));
  block.address = memory_.Allocate(block.bytes);
  block.term = term;
  block.before = !recording_;
  block.created = Kernels();
  live_[static_cast<size_t>(term)] += memory_.SizeOf(block.address);
  if (Moves(block.bytes)) {
    chunks_ += InChunks(block.bytes);
  } else {
    block.small_address = small_.Allocate(block.bytes);
  }
  if (memory_.allocated() > result_.peak_allocated) {
    result_.peak_allocated = memory_.allocated();
    result_.terms = live_;
  }
  result_.peak_chunks = std::max(result_.peak_chunks, chunks_);
  blocks_.push_back(block);
  return {std::make_shared<Storage>(this, static_cast<uint32_t>(blocks_.size() - 1)), elements, type};
}

Term DeviceTape::SetTerm(Term term) { return std::exchange(term_, term); }

void DeviceTape::Rename(const Tensor& tensor, Term term, uint32_t key) {
  Block& block = blocks_[tensor.storage->id()];
  const Bytes bytes = memory_.SizeOf(block.address);
  live_[static_cast<size_t>(block.term)] -= bytes;
  live_[static_cast<size_t>(term)] += bytes;
  block.term = term;
  block.key = key;
}

void DeviceTape::Release(uint32_t id) {
  Block& block = blocks_[id];
  block.live = false;
  block.freed = Kernels();
  live_[static_cast<size_t>(block.term)] -= memory_.SizeOf(block.address);
  if (Moves(block.bytes)) {
    chunks_ -= InChunks(block.bytes);
  } else {
    small_.Free(block.small_address);
  }
  memory_.Free(block.address);
}

std::vector<uint32_t> DeviceTape::Name(const std::vector<Tensor>& tensors) {
  std::vector<uint32_t> names;
  for (const Tensor& tensor : tensors) {
    if (!tensor) continue;
    Block& block = blocks_[tensor.storage->id()];
    if (!Moves(block.bytes)) continue;
    if (block.tensor == kNone) {
      block.tensor = static_cast<uint32_t>(result_.workload.tensors.size());
      result_.workload.tensors.push_back({InChunks(block.bytes), block.before});
    }
    names.push_back(block.tensor);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void DeviceTape::Launch(const char* name, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& outputs, double operations, bool half) {
  if (!recording_) return;
  LaunchCost cost{operations, half, 0};
  for (const auto* tensors : {&inputs, &outputs}) {
    for (const Tensor& tensor : *tensors) cost.bytes += tensor.bytes();
  }
  result_.costs.push_back(cost);
  result_.workload.kernels.push_back({name, 0, Name(inputs), Name(outputs), 0});
}

void DeviceTape::StartIteration() { recording_ = true; }

// Makes one tensor of a gradient that exists when the iteration begins, and the one that it leaves: its life
// goes over the iteration's end.
void DeviceTape::JoinGradients() {
  std::map<uint32_t, uint32_t> left;  // key -> block that the iteration made and left
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    if (blocks_[b].key != kNone && !blocks_[b].before && blocks_[b].live) left[blocks_[b].key] = b;
  }
  std::vector<uint32_t> same(result_.workload.tensors.size());
  for (uint32_t t = 0; t < same.size(); ++t) same[t] = t;
  for (Block& old : blocks_) {
    if (!old.before || old.live || old.freed == kNone || old.key == kNone || !left.contains(old.key))
      continue;
    Block& made = blocks_[left[old.key]];
    made.freed = old.freed;  // in the next iteration
    if (old.tensor != kNone && made.tensor != kNone) same[old.tensor] = made.tensor;
    old.tensor = kNone;
  }
  for (WorkloadKernel& kernel : result_.workload.kernels) {
    for (auto* ids : {&kernel.inputs, &kernel.outputs}) {
      for (uint32_t& t : *ids) t = same[t];
      std::sort(ids->begin(), ids->end());
      ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
    }
  }
}

TapeResult DeviceTape::Finish() {
  JoinGradients();
  recording_ = false;
  const uint32_t kernels = Kernels();
  for (const Block& block : blocks_) {
    if (block.tensor == kNone) continue;
    WorkloadTensor& tensor = result_.workload.tensors[block.tensor];
    tensor.persistent = block.live && block.freed == kNone;
    if (tensor.persistent || kernels == 0) continue;
    // The life is from the kernel that follows the allocation to the one before the free.
    const uint32_t first = block.before ? 0 : std::min(block.created, kernels - 1);
    const uint32_t last = block.freed == 0 ? kernels - 1 : block.freed - 1;
    tensor.life = TensorLife{first, last};
  }
  result_.peak_reserved = memory_.peak_reserved();
  result_.small_bytes = small_.peak_reserved();
  return std::move(result_);
}

}  // namespace spillway::policy
