#include "integration/hooks/launch_reports.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "allocator/residency/residency.h"
#include "integration/hooks/hook_rows.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::Residency;

// An operator on single tensors names fewer blocks than this.
constexpr size_t kManyBlocks = 12;
// The most blocks that a kernel for lists names of one tensor: the parameter, its gradient, two moments, and
// the largest of one.
constexpr size_t kMaxBlocksOfOne = 5;
constexpr size_t kLongestName = 160;

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) != std::string_view::npos) return true;
  }
  return false;
}

constexpr size_t kMaxBlocksShown = 8;

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
  for (size_t i = 0; i < blocks.size() && i < kMaxBlocksShown; ++i) {
    char one[64];
    std::snprintf(one, sizeof(one), " 0x%llx (%llu bytes)", static_cast<unsigned long long>(blocks[i].base),
                  static_cast<unsigned long long>(blocks[i].bytes));
    text += one;
  }
  return blocks.size() > kMaxBlocksShown ? text + " ..." : text;
}

const char* ReasonOf(ReachesAll why) {
  switch (why) {
    case ReachesAll::kDenied: return " is in the deny list";
    case ReachesAll::kNcclWorksOutside: return " has its work items outside of its arguments";
    default: return " is of an unknown version of NCCL";
  }
}

// Returns true once for kernels of the deny list, and once for those of NCCL's.
bool IsFirst(std::atomic<bool> (&reported)[2], ReachesAll why) {
  return !reported[why == ReachesAll::kDenied ? 0 : 1].exchange(true);
}

}  // namespace

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string readable = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return readable;
}

std::string CallOfTag(uint64_t tag) {
  std::string_view name;
  ForEachRow([&]<Row R>() {
    if (RowTraits<R>::kInfo.tag == tag) name = BaseNameOf(RowTraits<R>::kSymbol);
  });
  const uint64_t graphs = RowTraits<Row::cuGraphLaunch>::kInfo.tag;
  if (name.empty() && (tag ^ graphs) <= 0xffff) name = BaseNameOf(RowTraits<Row::cuGraphLaunch>::kSymbol);
  return std::string(name);
}

std::string NameOfTag(FunctionRegistry* functions, uint64_t tag) {
  const FunctionInfo* const info = functions->FindByTag(tag);
  return info != nullptr ? Demangled(info->name) : CallOfTag(tag);
}

std::string LaunchAdvice(const std::string& kernel, size_t blocks) {
  std::string text;
  if (!kernel.empty()) {
    text =
        "The kernel is " + kernel.substr(0, kLongestName) + (kernel.size() > kLongestName ? "..." : "") + ".";
  }
  // PyTorch's kernels for lists of tensors (Apex and others have theirs under the same name), and the
  // operators with that name if kernels are named after them.
  const bool fused = HasAny(kernel, {"FusedAdam", "FusedSgd", "FusedSGD", "FusedAdagrad", "_fused_"});
  const bool lists =
      blocks > kMaxBlocksOfOne && (fused || HasAny(kernel, {"multi_tensor_apply", "_foreach_"}));
  const auto add = [&text](std::string_view more) {
    text += text.empty() ? "" : " ";
    text += more;
  };
  if (lists && HasAny(kernel, {"Norm", "norm"})) {
    add("It works on many tensors at once: foreach=False for clip_grad_norm_ makes it work on one at a "
        "time.");
  } else if (lists) {
    add("It works on many tensors of the optimizer at once: ");
    text += fused ? "fused=False with foreach=False" : "foreach=False";
    text += " for the optimizer makes it work on one at a time; smaller parameter groups help, too.";
  } else if (blocks >= kManyBlocks) {
    add("If it is a part of an optimizer's step, foreach=False and fused=False, or smaller parameter groups, "
        "make it "
        "fit.");
  }
  return text;
}

void ReportReachingAll(const std::string& kernel, ReachesAll why) {
  static std::atomic<bool> reported[2];
  if (!IsFirst(reported, why)) return;
  os::ReportLine("kernel " + kernel + ReasonOf(why) + ": all blocks are brought to the GPU for each " +
                 (why == ReachesAll::kDenied ? "launch of it" : "such launch"));
}

void ReportReachingAllRefused(const std::string& kernel, ReachesAll why) {
  static std::atomic<bool> reported[2];
  if (!IsFirst(reported, why)) return;
  os::ReportLine("kernel " + kernel + (why == ReachesAll::kDenied ? " is in the deny list and" : "") +
                 " may reach any block, and all of them together do not fit the budget: a larger "
                 "SPILLWAY_GPU_MEMORY is needed" +
                 (why == ReachesAll::kNcclWorksOutside ? ", or fewer collectives in one group" : ""));
}

void Auditor::OnFault(const allocator::AuditedLaunch& launch) {
  faults_.fetch_add(1);
  const std::string where = "audit: launch " + std::to_string(launch.number) + " on GPU " +
                            std::to_string(launch.device) + " ended in " + TextOf(launch.result) + ": ";
  const FunctionInfo* const info = functions_->FindByTag(launch.tag);
  if (info == nullptr) {
    const std::string call = CallOfTag(launch.tag);
    os::ReportLine(where + (call.empty() ? "a kernel without a name" : call) + "; " +
                   BlocksText(launch.blocks) + ". It cannot be put into a deny list.");
    return;
  }
  const Kernel kernel = {info->name, Demangled(info->name), info->library, launch.number};
  std::string text = where + "kernel " + kernel.readable;
  text += kernel.library.empty() ? " of an unknown library" : " of " + kernel.library;
  text += " touched memory that is not mapped; " + BlocksText(launch.blocks) + ". " + record_(kernel);
  os::ReportLine(text);
}

void Auditor::OnEarlierFault(int device, uint64_t number, CUresult result) {
  faults_.fetch_add(1);
  os::ReportLine("audit: before launch " + std::to_string(number) + " on GPU " + std::to_string(device) +
                 " something that is not audited (a host function, other memory) failed with " +
                 TextOf(result) + ": the audit ends");
}

void Auditor::OnCaptured(int device, uint64_t tag) {
  const FunctionInfo* const info = functions_->FindByTag(tag);
  os::ReportLine("audit: launches that go into a graph are not audited one by one; the first on GPU " +
                 std::to_string(device) + " is of " +
                 (info == nullptr ? CallOfTag(tag) : Demangled(info->name)));
}

std::string Auditor::Summary() const {
  const uint64_t faults = faults_.load();
  return "audit: " + std::to_string(passed_.load() + faults) + " launches, " + std::to_string(faults) +
         (faults == 1 ? " fault" : " faults");
}

}  // namespace spillway::integration
