#include "integration/simcuda/driver/execution/ipc_event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/memory/ipc_file.h"

namespace simcuda {

// At the start of the file, before the file's own description.
struct SharedEvent::Counts {
  std::atomic<uint64_t> recorded, reached;
  IpcFile file;
};

std::shared_ptr<SharedEvent> SharedEvent::Map(int descriptor) {
  void* const memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    close(descriptor);
    return nullptr;
  }
  return std::shared_ptr<SharedEvent>(new SharedEvent(descriptor, static_cast<Counts*>(memory)));
}

std::shared_ptr<SharedEvent> SharedEvent::Create() {
  IpcFile file;
  if (!MakeIpcFile(IpcKind::kEvent, sizeof(Counts), &file)) return nullptr;
  std::shared_ptr<SharedEvent> event = Map(file.descriptor);
  if (event != nullptr) event->counts_->file = file;
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::Open(const CUipcEventHandle& handle) {
  IpcFile file;
  std::memcpy(&file, &handle, sizeof(file));
  const int descriptor = OpenIpcFile(IpcKind::kEvent, file);
  return descriptor < 0 ? nullptr : Map(descriptor);
}

SharedEvent::~SharedEvent() {
  munmap(counts_, sizeof(Counts));
  close(descriptor_);
}

void SharedEvent::MakeHandle(CUipcEventHandle* handle) const {
  *handle = {};
  std::memcpy(handle, &counts_->file, sizeof(counts_->file));
}

uint64_t SharedEvent::Record() { return ++counts_->recorded; }

void SharedEvent::Reach(uint64_t number) {
  uint64_t before = counts_->reached.load();
  while (before < number && !counts_->reached.compare_exchange_weak(before, number)) {
  }
}

uint64_t SharedEvent::recorded() const { return counts_->recorded.load(); }

bool SharedEvent::IsReached(uint64_t number) const { return counts_->reached.load() >= number; }

void SharedEvent::WaitFor(uint64_t number) const {
  while (!IsReached(number)) SleepUntil(NowNs() + kPollNs);
}

void SharedEventWait::Run(Stream& stream, bool skip) {
  while (!skip && !event_->IsReached(number_) && !stream.context()->failed()) SleepUntil(NowNs() + kPollNs);
}

}  // namespace simcuda
