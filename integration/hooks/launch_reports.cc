#include "integration/hooks/launch_reports.h"

#include <cstdio>

#include "integration/hooks/tag_names.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::Residency;
using allocator::StreamRef;

constexpr size_t kMostBlocksShown = 8;

const char* NameOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case CUDA_ERROR_LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: return "CUDA_ERROR_INVALID_ADDRESS_SPACE";
    case CUDA_ERROR_MISALIGNED_ADDRESS: return "CUDA_ERROR_MISALIGNED_ADDRESS";
    default: return nullptr;
  }
}

std::string TextOf(CUresult result) {
  const char* const name = NameOf(result);
  return name != nullptr ? name : "CUDA error " + std::to_string(static_cast<int>(result));
}

std::string BlocksText(const std::vector<Residency::Range>& blocks) {
  if (blocks.empty()) return "its parameters name no block";
  std::string text =
      "its parameters name " + std::to_string(blocks.size()) + (blocks.size() == 1 ? " block:" : " blocks:");
  for (size_t i = 0; i < blocks.size() && i < kMostBlocksShown; ++i) {
    char one[64];
    std::snprintf(one, sizeof(one), " 0x%llx (%llu bytes)", static_cast<unsigned long long>(blocks[i].base),
                  static_cast<unsigned long long>(blocks[i].bytes));
    text += one;
  }
  return blocks.size() > kMostBlocksShown ? text + " ..." : text;
}

bool AllOn(const AccessSet& set, int device) {
  for (const BlockId id : set) {
    if (id.device() != device) return false;
  }
  return true;
}

Residency* CurrentResidency(HookState* state, HookContext* context) {
  return context == nullptr ? nullptr : context->Of(CurrentDevice(*state));
}

}  // namespace

CUresult CallUncollected(HookState* state, uint64_t tag, StreamRef stream, RealCall real) {
  HookContext* const context = state == nullptr ? nullptr : state->context.load(std::memory_order_acquire);
  if (context == nullptr || !context->audit) return CallOthers(state, 0, real);
  Residency* const residency = CurrentResidency(state, context);
  if (residency == nullptr) return CallOthers(state, 0, real);
  const AccessSet nothing;
  return CallOthers(state, 0, [&] { return residency->Run(nothing, stream, tag, real); });
}

CUresult PassNothingNamed(Touch* touch, StreamRef stream, RealCall real) {
  if (__builtin_expect(touch->denied != nullptr, 0)) return PassDenied(touch, stream, real);
  if (__builtin_expect(touch->reaches_all, 0))
    return CallReachingAll(touch->state(), stream, touch->tag, real);
  return CallUncollected(touch->state(), touch->tag, stream, real);
}

CUresult PassDenied(Touch* touch, StreamRef stream, RealCall real) {
  static std::atomic<bool> told{false}, told_refused{false}, no_room_to_hold{false};
  const std::string kernel = Demangled(touch->denied->name);
  const int device = CurrentDevice(*touch->state());
  Residency* const residency = touch->context()->Of(device);
  if (!AllOn(touch->set(), device)) {
    touch->NotUnderstood((kernel + " (of the deny list, on several devices)").c_str());
    touch->denied = nullptr;
    return PassGate(touch, stream, real);
  }
  if (residency == nullptr) return CallOthers(touch->state(), 0, real);
  if (!told.exchange(true)) {
    os::Announce("kernel " + kernel +
                 " is in the deny list: all blocks are brought to the GPU for each launch of it");
  }
  if (!no_room_to_hold.load() && !HoldDenied(touch, kernel.c_str())) no_room_to_hold.store(true);
  const CUresult result = residency->RunReachingAll(touch->set(), stream, touch->tag, real);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !told_refused.exchange(true)) {
    os::Announce(
        "kernel " + kernel +
        " is in the deny list and may reach any block, and all of them together do not fit the budget: "
        "a larger SPILLWAY_GPU_MEMORY is needed");
  }
  return result;
}

void NoteDeniedInGraph(Touch* touch) {
  touch->NotUnderstood((Demangled(touch->denied->name) + " (of the deny list) in a graph").c_str());
  touch->denied = nullptr;
}

void Auditor::OnFault(const allocator::AuditedLaunch& launch) {
  faults_.fetch_add(1);
  const std::string where = "audit: launch " + std::to_string(launch.number) + " on GPU " +
                            std::to_string(launch.device) + " ended in " + TextOf(launch.result) + ": ";
  const FunctionInfo* const info = functions_->FindByTag(launch.tag);
  if (info == nullptr) {
    const std::string call = CallOfTag(launch.tag);
    os::Announce(where + (call.empty() ? "a kernel without a name" : call) + "; " +
                 BlocksText(launch.blocks) + ". It cannot be put into a deny list.");
    return;
  }
  const Kernel kernel = {info->name, Demangled(info->name), info->library, launch.number};
  std::string text = where + "kernel " + kernel.readable;
  text += kernel.library.empty() ? " of a library that is not known" : " of " + kernel.library;
  text += " touched memory that is not mapped; " + BlocksText(launch.blocks) + ". " + record_(kernel);
  os::Announce(text);
}

void Auditor::OnEarlierFault(int device, uint64_t number, CUresult result) {
  faults_.fetch_add(1);
  os::Announce("audit: before launch " + std::to_string(number) + " on GPU " + std::to_string(device) +
               " something that is not audited (a host function, memory of others) failed with " +
               TextOf(result) + ": the audit ends");
}

void Auditor::OnCaptured(int device, uint64_t tag) {
  const FunctionInfo* const info = functions_->FindByTag(tag);
  os::Announce("audit: launches that go into a graph are not audited one by one; the first on GPU " +
               std::to_string(device) + " is of " +
               (info == nullptr ? CallOfTag(tag) : Demangled(info->name)));
}

std::string Auditor::Summary() const {
  const uint64_t faults = faults_.load();
  return "audit: " + std::to_string(passed_.load() + faults) + " launches, " + std::to_string(faults) +
         (faults == 1 ? " fault" : " faults");
}

}  // namespace spillway::integration
