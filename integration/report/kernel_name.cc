#include "integration/report/kernel_name.h"

#include <string_view>

namespace spillway::integration {
namespace {

constexpr std::string_view kLeftOut = "...";
constexpr size_t kAtTheEnd = 40;

}  // namespace

std::string ShortKernelName(const std::string& name) {
  if (name.size() <= kLongestKernelName) return name;
  std::string text = name.substr(0, kLongestKernelName - kAtTheEnd - kLeftOut.size());
  text += kLeftOut;
  return text + name.substr(name.size() - kAtTheEnd);
}

}  // namespace spillway::integration
