#include "integration/escape/pins.h"

#include <string>
#include <utility>

#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::EscapedUsers;
using allocator::PinnedBlock;
using allocator::PinReason;
using allocator::Residency;

// Ordinary programs meet these reasons all the time; the others are worth a warning.
bool IsOrdinary(PinReason reason) {
  return reason == PinReason::kGraph || reason == PinReason::kPointerTable ||
         reason == PinReason::kModuleGlobal;
}

}  // namespace

AccessSet PartOn(int device, const AccessSet& set) {
  AccessSet part;
  for (const BlockId id : set) {
    if (id.device() == device) part.Add(id);
  }
  return part;
}

void FindRanges(const DeviceResidencies& devices, const AccessSet& set,
                std::vector<allocator::BlockRange>* ranges) {
  for (int device = 0; device < allocator::kMaxDevices && !set.empty(); ++device) {
    const Residency* const residency = devices.Of(device);
    if (residency != nullptr) residency->FindRanges(PartOn(device, set), ranges);
  }
}

CUresult PinBlocks(const DeviceResidencies& devices, const AccessSet& set, PinReason reason,
                   PinTicket* ticket) {
  PinTicket taken{reason, {}};
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    const AccessSet part = PartOn(device, set);
    Residency* const residency = part.empty() ? nullptr : devices.Of(device);
    if (residency == nullptr) continue;
    const absl::Status pinned = residency->Pin(part, reason, &taken.blocks);
    if (pinned.ok()) continue;
    os::Log(os::LogLevel::kError, "cannot pin blocks on the GPU: " + std::string(pinned.message()));
    EndPins(devices, &taken, {});
    return allocator::ResultOf(pinned);
  }
  if (ticket != nullptr) *ticket = std::move(taken);
  return CUDA_SUCCESS;
}

void EndPins(const DeviceResidencies& devices, PinTicket* ticket, const EscapedUsers& users) {
  for (int device = 0; device < allocator::kMaxDevices && !ticket->blocks.empty(); ++device) {
    std::vector<PinnedBlock> part;
    for (const PinnedBlock& block : ticket->blocks) {
      if (block.id.device() == device) part.push_back(block);
    }
    Residency* const residency = part.empty() ? nullptr : devices.Of(device);
    if (residency != nullptr) residency->Unpin(part, ticket->reason, users);
  }
  ticket->blocks.clear();
}

void EndPins(const DeviceResidencies& devices, std::vector<PinTicket>* tickets, const EscapedUsers& users) {
  for (PinTicket& ticket : *tickets) EndPins(devices, &ticket, users);
  tickets->clear();
}

void PinReports::Report(PinReason reason, const char* call) {
  if (reported_[static_cast<size_t>(reason)].exchange(true)) return;
  os::Log(IsOrdinary(reason) ? os::LogLevel::kInfo : os::LogLevel::kWarn,
          std::string("blocks stay on the GPU (") + NameOf(reason) + "): " + call +
              " lets an address escape to where its uses cannot be seen");
}

bool PinReports::ReportTable(const std::string& library, const std::string& table) {
  {
    os::MutexLock lock(&mu_);
    if (!askers_.insert(library).second) return false;
  }
  os::Log(os::LogLevel::kWarn,
          library + " asked for the " + table +
              ", which is unknown, and perhaps for others: launches through them are not seen");
  return true;
}

PinTicket ObjectPins::Add(Kind kind, unsigned long long object, PinTicket ticket) {
  os::MutexLock lock(&mu_);
  PinTicket& kept = tickets_[static_cast<int>(kind)][object];
  std::swap(kept, ticket);
  return ticket;
}

PinTicket ObjectPins::Take(Kind kind, unsigned long long object) {
  os::MutexLock lock(&mu_);
  auto& tickets = tickets_[static_cast<int>(kind)];
  const auto it = tickets.find(object);
  if (it == tickets.end()) return {};
  PinTicket ticket = std::move(it->second);
  tickets.erase(it);
  return ticket;
}

}  // namespace spillway::integration
