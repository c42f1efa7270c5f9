#include "integration/hooks/refusal_advice.h"

#include <initializer_list>
#include <string_view>

namespace spillway::integration {
namespace {

// More blocks than an operator on single tensors names.
constexpr size_t kManyBlocks = 12;
constexpr size_t kLongestName = 160;

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string RefusalAdvice(const std::string& kernel, size_t blocks) {
  std::string text;
  if (!kernel.empty()) {
    text =
        "The kernel is " + kernel.substr(0, kLongestName) + (kernel.size() > kLongestName ? "..." : "") + ".";
  }
  // PyTorch's kernels for lists of tensors (Apex and others have theirs under the same name), and the operators of that
  // name where kernels are called after them.
  const bool fused = HasAny(kernel, {"FusedAdam", "FusedSgd", "FusedSGD", "FusedAdagrad", "_fused_"});
  const bool lists = fused || HasAny(kernel, {"multi_tensor_apply", "_foreach_"});
  const auto add = [&text](std::string_view more) {
    text += text.empty() ? "" : " ";
    text += more;
  };
  if (lists && HasAny(kernel, {"Norm", "norm"})) {
    add("It works on many tensors at once: foreach=False for clip_grad_norm_ makes it work on one at a "
        "time.");
  } else if (lists) {
    add("It works on many tensors of the optimiser at once: ");
    text += fused ? "fused=False with foreach=False" : "foreach=False";
    text += " for the optimiser makes it work on one at a time; smaller parameter groups help, too.";
  } else if (blocks >= kManyBlocks) {
    add("If it is a part of an optimiser's step, foreach=False and fused=False, or smaller parameter groups, "
        "make it "
        "fit.");
  }
  return text;
}

}  // namespace spillway::integration
