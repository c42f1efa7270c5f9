#include "integration/hooks/access_set_builder.h"

#include <atomic>
#include <cstring>

#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;

// The scratch of one thread. t_scratch_dead outlives it, since hooks also run in destructors of other
// thread-locals.
struct Scratch {
  ~Scratch();
  AccessSetBuilder builder;
};
thread_local bool t_scratch_dead = false;
thread_local bool t_inside = false;
thread_local Scratch t_scratch;

Scratch::~Scratch() { t_scratch_dead = true; }

}  // namespace

void AccessSetBuilder::Begin(HookState* hook_state, HookContext* hook_context) {
  state_ = hook_state;
  context_ = hook_context;
  tag = 0;
  may_block = reaches_all = of_unknown_origin = false;
  denied = nccl = unanswered = nullptr;
  set_.Clear();
  if (__builtin_expect(!early_.empty(), 0)) early_.Clear();
  if (__builtin_expect(rewrites(), 0)) {
    found_.clear();
    overwritten_.clear();
  }
}

void AccessSetBuilder::OfUnknownOrigin() {
  if (state_->unknown_launches.fetch_add(1, std::memory_order_relaxed) == 0) {
    os::ReportLine(
        "a launched kernel has a handle that no hook has seen, so its parameters are not known: "
        "all blocks are brought to the GPU for each launch of such a kernel");
  }
  reaches_all = may_block = of_unknown_origin = true;
}

void AccessSetBuilder::Unanswered(const FunctionInfo& info) {
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    os::ReportLine("the driver does not report the parameters of " +
                   (info.name.empty() ? "a kernel" : "kernel " + info.name) +
                   (info.no_memory ? " for lack of GPU memory" : " now") +
                   ": until it does, all blocks are brought to the GPU for each of its launches");
  }
  unanswered = &info;
  reaches_all = may_block = true;
}

HookScope::HookScope() {
  if (t_inside) return;
  HookState* const state = GetHookState();
  if (state == nullptr) return;
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  t_inside = true;
  builder_ = t_scratch_dead ? new AccessSetBuilder : &t_scratch.builder;
  builder_->Begin(state, context);
}

bool InsideHookedCall() { return t_inside; }

HookScope::~HookScope() {
  if (builder_ == nullptr) return;
  t_inside = false;
  if (t_scratch_dead) delete builder_;
}

void AccessSetBuilder::Blocks(const std::vector<allocator::BlockRange>& ranges) {
  // A graph may name thousands of blocks, and Add would search all of them for each one. Only the last block
  // can come up again as long as each range is one block.
  bool one_each = true;
  for (const allocator::BlockRange& range : ranges) {
    const BlockId id = map().Find(range.base);
    one_each &= id.valid() && map().Find(range.base + range.bytes - 1) == id;
    if (!one_each) {
      Range(range.base, range.bytes);
    } else if (set_.empty() || *(set_.end() - 1) != id) {
      set_.AddNew(id);
    }
  }
}

void AccessSetBuilder::WritesFromHost(uint64_t address, const void* source, uint64_t bytes) {
  Writes(address, bytes);
  if (source == nullptr || bytes > kLargestPointerTable) return;
  const char* const first = static_cast<const char*>(source);
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, first + at, sizeof(word));
    if (__builtin_expect(!map().Contains(word), 1)) continue;
    scratch_.Clear();
    map().Collect(word, &scratch_);
    for (const BlockId id : scratch_) found_.push_back({address + at, sizeof(word), id});
  }
  if (__builtin_expect(!state_->tensor_maps.any(), 1)) return;
  for (uint64_t at = -address % TensorMaps::kAlignment; at + TensorMaps::kBytes <= bytes;
       at += TensorMaps::kAlignment) {
    const TensorMaps::Range range = state_->tensor_maps.Find(first + at);
    if (range.bytes == 0) continue;
    scratch_.Clear();
    map().CollectRange(range.address, range.bytes, &scratch_);
    for (const BlockId id : scratch_) found_.push_back({address + at, TensorMaps::kBytes, id});
  }
}

void AccessSetBuilder::WritesFromDevice(uint64_t address, uint64_t source, uint64_t bytes) {
  Writes(address, bytes);
  if (bytes != 0 && state_->tables.MayOverlap(source, bytes)) {
    state_->tables.Moved(source, bytes, address, &found_);
  }
}

void AccessSetBuilder::KernelWrites(uint64_t address, bool fills) {
  if (fills && state_->tables.MayOverlap(address, sizeof(uint64_t)))
    overwritten_.push_back({address, sizeof(uint64_t), PointerTables::Change::kGone});
  // The table's own block is on the GPU wherever the table is used.
  const BlockId own = map().Find(address);
  for (const BlockId id : set_) {
    if (id != own) found_.push_back({address, sizeof(uint64_t), id, true});
  }
}

}  // namespace spillway::integration
