#include "integration/escape/pins.h"

#include <string>
#include <utility>

#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::HeldBlock;
using allocator::HiddenUsers;
using allocator::HoldReason;
using allocator::Residency;

// Ordinary programs meet these all the time; the others deserve a line of their own.
bool IsOrdinary(HoldReason reason) {
  return reason == HoldReason::kGraph || reason == HoldReason::kPointerTable ||
         reason == HoldReason::kModuleGlobal;
}

}  // namespace

CUresult HoldBlocks(const DeviceResidencies& devices, const AccessSet& set, HoldReason reason,
                    HoldTicket* ticket) {
  HoldTicket taken{reason, {}};
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    AccessSet part;
    for (const BlockId id : set) {
      if (id.device() == device) part.Add(id);
    }
    Residency* const residency = part.empty() ? nullptr : devices.Of(device);
    if (residency == nullptr) continue;
    const absl::Status held = residency->Hold(part, reason, &taken.blocks);
    if (held.ok()) continue;
    os::Log(os::LogLevel::kError, "cannot hold blocks on the GPU: " + std::string(held.message()));
    EndHolds(devices, &taken, {});
    return allocator::ResultOf(held);
  }
  if (ticket != nullptr) *ticket = std::move(taken);
  return CUDA_SUCCESS;
}

void EndHolds(const DeviceResidencies& devices, HoldTicket* ticket, const HiddenUsers& users) {
  for (int device = 0; device < allocator::kMaxDevices && !ticket->blocks.empty(); ++device) {
    std::vector<HeldBlock> part;
    for (const HeldBlock& block : ticket->blocks) {
      if (block.id.device() == device) part.push_back(block);
    }
    Residency* const residency = part.empty() ? nullptr : devices.Of(device);
    if (residency != nullptr) residency->EndHold(part, ticket->reason, users);
  }
  ticket->blocks.clear();
}

void EndHolds(const DeviceResidencies& devices, std::vector<HoldTicket>* tickets, const HiddenUsers& users) {
  for (HoldTicket& ticket : *tickets) EndHolds(devices, &ticket, users);
  tickets->clear();
}

void PinReports::Report(HoldReason reason, const char* call) {
  if (reported_[static_cast<size_t>(reason)].exchange(true)) return;
  os::Log(IsOrdinary(reason) ? os::LogLevel::kInfo : os::LogLevel::kWarn,
          std::string("blocks stay on the GPU (") + NameOf(reason) + "): " + call +
              " lets an address go where its uses cannot be seen");
}

HoldTicket ObjectHolds::Add(Kind kind, unsigned long long object, HoldTicket ticket) {
  os::MutexLock lock(&mu_);
  HoldTicket& kept = tickets_[static_cast<int>(kind)][object];
  std::swap(kept, ticket);
  return ticket;
}

HoldTicket ObjectHolds::Take(Kind kind, unsigned long long object) {
  os::MutexLock lock(&mu_);
  auto& tickets = tickets_[static_cast<int>(kind)];
  const auto it = tickets.find(object);
  if (it == tickets.end()) return {};
  HoldTicket ticket = std::move(it->second);
  tickets.erase(it);
  return ticket;
}

}  // namespace spillway::integration
