// The name of a kernel as reports and traces have it: the one way to shorten it, so that the same kernel has the
// same name wherever it is counted. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_
#define SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_

#include <cstddef>
#include <string>

namespace spillway::integration {

inline constexpr size_t kLongestKernelName = 160;  // bytes; templates make names of thousands

// At most so many bytes: a longer name loses its middle, since those of one template differ at their ends.
std::string ShortKernelName(const std::string& name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_
