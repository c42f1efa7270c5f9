// NCCL's kernels: which versions of NCCL are in the process, which kernels are theirs, and whether a launch of
// one shows all that it reaches. But for the versions pure: names, sizes and bytes in, answers out. The
// function registry asks as it learns a kernel, the readers of arguments at each launch, on launching threads.
// No lock of ours is taken. Nothing fails: what is not recognised counts as not followed. The gate decides
// what such a launch needs (docs/escaped-pointers.md).
//
// A kernel of NCCL has one parameter, ncclDevKernelArgs, of 4,096 bytes. The works of a launch, which name
// its buffers, follow in the same bytes where they fit. Else they lie in a queue that the CPU writes, or
// behind a pointer in a graph, where no scan of the parameter finds them. From NCCL's src/include/device.h:
//   0 comm, 8 channel mask, 16 where the works are (a byte), 20 mask of work offsets, 24 pointer to the works.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway::integration {

// What ncclGetVersion says in each loaded object that exports it, as 22809 for 2.28.9; 0 where it fails.
// Empty: no loaded object exports it (an NCCL that is linked into another library and hidden there). Opens
// nothing, since a launch may come while another thread holds the loader's lock.
std::vector<int> LoadedNcclVersions();

enum class NcclKernel {
  kNone,      // not a kernel of NCCL's collectives
  kFollowed,  // its arguments are understood: each launch says where its works are
  kUnknown,   // of a version whose arguments are not known, or with other parameters than that version has
};

// `name`: as the driver gives it. `params`: how many parameters the kernel has, `bytes`: the size of the
// first, in whole words. `versions`: what each NCCL in the process says of itself; none: not known.
NcclKernel RecognizeNccl(std::string_view name, size_t params, size_t bytes,
                         const std::vector<int>& versions);

// Whether the name is that of a kernel of NCCL's collectives, mangled or not, of whatever version.
bool IsNcclName(std::string_view name);
// Whether the arguments of the kernels of that version are known.
bool IsKnownNccl(int version);

// Whether the works of a launch lie in its arguments, so that a scan of them finds every buffer. `bytes`: the
// arguments, `size` of them. False also where they are not as a known version writes them.
bool NcclWorksAreInArguments(const void* bytes, size_t size);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_NCCL_KERNELS_H_
