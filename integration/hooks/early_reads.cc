#include "integration/hooks/early_reads.h"

namespace spillway::integration {

CUresult PassEarlyReads(const AccessSetBuilder* builder, allocator::StreamRef stream,
                        absl::FunctionRef<CUresult()> pass) {
  // The blocks that a captured call may read early stay from then on (PassIntoGraph).
  if (builder->early().empty() || IsCapturing(*builder->state(), stream)) return pass();
  if (NeedsCurrentContext(*builder->state(), *builder->context())) {
    const CUresult asked = FindCurrentContext(*builder->state(), &stream.context);
    if (asked != CUDA_SUCCESS) return asked;
  }
  PinTicket ticket;
  const DeviceResidencies& devices = builder->context()->devices;
  const CUresult pinned = PinBlocks(devices, builder->early(), allocator::PinReason::kUnknownCall, &ticket);
  if (pinned != CUDA_SUCCESS) return pinned;
  const CUresult result = pass();
  allocator::EscapedUsers users;
  if (result == CUDA_SUCCESS) users.streams.push_back(stream);
  EndPins(devices, &ticket, users);
  return result;
}

}  // namespace spillway::integration
