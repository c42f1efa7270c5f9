// Words for the tags that launches carry: kernels and kinds of copy.

#ifndef SPILLWAY_INTEGRATION_HOOKS_TAG_NAMES_H_
#define SPILLWAY_INTEGRATION_HOOKS_TAG_NAMES_H_

#include <cstdint>
#include <string>

namespace spillway::integration {

class FunctionRegistry;

// As in the source, if it is a C++ name; else as it is.
std::string Demangled(const std::string& name);

// The driver function whose calls carry the tag; empty for a kernel's.
std::string CallOfTag(uint64_t tag);

// "cuMemcpyDtoDAsync", or the demangled kernel; empty when neither is known. Takes the registry's lock.
std::string NameOfTag(FunctionRegistry* functions, uint64_t tag);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_TAG_NAMES_H_
