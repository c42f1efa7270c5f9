// Which versions of NCCL are in the process. The function registry asks when it learns a kernel of NCCL's, on
// launching threads: no lock of ours, and nothing is opened, since a launch may come while another thread
// holds the loader's lock. Nothing fails.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_NCCL_VERSIONS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_NCCL_VERSIONS_H_

#include <vector>

namespace spillway::integration {

// What ncclGetVersion says in each loaded object that exports it, as 22809 for 2.28.9; 0 where it fails.
// Empty: no loaded object exports it (an NCCL that is linked into another library and hidden there).
std::vector<int> LoadedNcclVersions();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_NCCL_VERSIONS_H_
