// Recognizes NCCL: which versions of it are in the process, which kernels are its own, and whether a launch
// of one shows everything that it reaches. Apart from the versions this is pure: names, sizes and bytes in,
// answers out. The function registry asks when it learns a kernel, the readers of arguments ask at each
// launch, both on launching threads. No lock of ours is taken. No call fails: a kernel that is not recognized
// counts as not followed. The gate decides what such a launch needs (docs/escaped-pointers.md).
//
// A kernel of NCCL has one parameter, ncclDevKernelArgs, of 4,096 bytes. The works of a launch, which name
// its buffers, follow in the same bytes if they fit. Otherwise they lie in a queue that the CPU writes, or
// behind a pointer in a graph, and no scan of the parameter finds them. The layout is that of NCCL's
// src/include/device.h:
//   0 comm, 8 channel mask, 16 where the works are (a byte), 20 mask of work offsets, 24 pointer to the works.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway::integration {

// Returns the answer of ncclGetVersion in each loaded object that exports it: 22809 for 2.28.9; 0 if the call
// fails. The result is empty if no loaded object exports the function, as when NCCL is linked into another
// library and hidden there. Opens nothing, since a launch may come while another thread has the loader's
// lock.
std::vector<int> LoadedNcclVersions();

enum class NcclKernel {
  kNone,      // not a kernel of NCCL's collectives
  kFollowed,  // its arguments are understood: each launch shows where its works are
  kUnknown,   // of a version whose arguments are not known, or with other parameters than that version has
};

// Classifies a kernel. `name` is as the driver gives it, `params` the number of the kernel's parameters,
// `bytes` the size of the first one in whole words. `versions` has the version of each NCCL in the process;
// empty if not known.
NcclKernel RecognizeNccl(std::string_view name, size_t params, size_t bytes,
                         const std::vector<int>& versions);

// Returns whether the name is that of a kernel of NCCL's collectives, mangled or not, of whatever version.
bool IsNcclName(std::string_view name);
// Returns whether the arguments of that version's kernels are known.
bool IsKnownNccl(int version);

// Returns whether the works of a launch lie in its arguments, the `size` bytes at `bytes`, so that a scan of
// them finds every buffer. Also false if the arguments are not as a known version writes them.
bool NcclWorksAreInArguments(const void* bytes, size_t size);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_
