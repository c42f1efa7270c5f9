// The name of a kernel in reports and traces. Names are shortened here alone, so that the same kernel has the
// same name wherever it is counted. Pure; cannot fail.

#ifndef SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_
#define SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_

#include <cstddef>
#include <string>

namespace spillway::integration {

inline constexpr size_t kLongestKernelName = 160;  // bytes; templates make names of thousands

// Returns a name of at most kLongestKernelName bytes. A longer name loses its middle, since names of one
// template differ at their ends.
std::string ShortKernelName(const std::string& name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_KERNEL_NAME_H_
