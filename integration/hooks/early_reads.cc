#include "integration/hooks/early_reads.h"

namespace spillway::integration {

CUresult PassEarlyReads(const AccessSetBuilder* builder, allocator::StreamRef stream, RealCall pass) {
  // A capture pins what it names, and such pins wait already.
  if (builder->early().empty() || IsCapturing(*builder->state(), stream)) return pass();
  PinTicket ticket;
  const DeviceResidencies& devices = builder->context()->devices;
  const CUresult pinned = PinBlocks(devices, builder->early(), allocator::PinReason::kUnknownCall, &ticket);
  if (pinned != CUDA_SUCCESS) return pinned;
  const CUresult result = pass();
  if (ContextTells(*builder->state(), *builder->context()))
    stream.context = CurrentContext(*builder->state());
  allocator::EscapedUsers users;
  if (result == CUDA_SUCCESS) users.streams.push_back(stream);
  EndPins(devices, &ticket, users);
  return result;
}

}  // namespace spillway::integration
