#include "integration/escape/nccl_kernels.h"

#include <algorithm>
#include <cstring>

namespace spillway::integration {
namespace {

constexpr size_t kArgumentBytes = 4096;

// ncclDevKernelArgs, of which the batches and, where they fit, the works are the rest.
struct Head {
  uint64_t comm;
  uint64_t channel_mask;
  uint8_t storage;  // 0: in the arguments, 1: in the queue, 2: in a buffer of a graph's own
  uint8_t unused[3];
  uint32_t work_mask;
  uint64_t work_buffer;
};
static_assert(sizeof(Head) == 32);
static_assert(offsetof(Head, storage) == 16 && offsetof(Head, work_buffer) == 24);
constexpr uint8_t kInArguments = 0;

// Versions whose arguments were compared with the kernels of their wheels (tests/cubins/nccl_arguments.py).
constexpr int kKnown[] = {228, 229, 230};

// A function outside of all namespaces is mangled as _Z, its length, its name, its parameters.
std::string_view Unmangled(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  name.remove_prefix(2);
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return name;
}

}  // namespace

bool IsNcclName(std::string_view name) {
  const std::string_view plain = Unmangled(name);
  return plain.starts_with("ncclDevKernel_") || plain.starts_with("ncclKernel_");
}

bool IsKnownNccl(int version) { return std::ranges::find(kKnown, version / 100) != std::end(kKnown); }

NcclKernel RecognizeNccl(std::string_view name, size_t params, size_t bytes,
                         const std::vector<int>& versions) {
  if (!IsNcclName(name)) return NcclKernel::kNone;
  const bool known = !versions.empty() && std::ranges::all_of(versions, IsKnownNccl);
  return known && params == 1 && bytes == kArgumentBytes ? NcclKernel::kFollowed : NcclKernel::kUnknown;
}

bool NcclWorksAreInArguments(const void* bytes, size_t size) {
  if (bytes == nullptr || size < sizeof(Head) || size > kArgumentBytes) return false;
  Head head;
  std::memcpy(&head, bytes, sizeof(head));
  // With its works in the arguments NCCL sets no buffer and masks no offset.
  return head.storage == kInArguments && head.work_buffer == 0 && head.work_mask == ~uint32_t{0};
}

}  // namespace spillway::integration
