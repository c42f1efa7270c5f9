// The part of an interprocess event that processes share: how many records were made, and how many of them
// the streams have reached. It lies in a file without a name that every process maps. A wait reads it again
// and again, every 20 us. event_api.cc creates and opens it; the threads of streams record, reach and wait.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_IPC_EVENT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_IPC_EVENT_H_

#include <cstdint>
#include <memory>

#include "integration/simcuda/driver/execution/stream.h"

namespace simcuda {

// Thread-safe.
class SharedEvent {
 public:
  // Returns a new one; null if the system gives no memory.
  static std::shared_ptr<SharedEvent> Create();
  // Returns that of a handle, of another process or of this one; null if it is gone.
  static std::shared_ptr<SharedEvent> Open(const CUipcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // Makes a handle by which another process opens it, as long as its maker lives (ipc_file.h).
  void MakeHandle(CUipcEventHandle* handle) const;
  // Record returns the number of a record that is about to be queued; Reach is called when the stream gets
  // there.
  uint64_t Record();
  void Reach(uint64_t number);
  // Returns the number of the last record, which a query or a wait that is made now refers to. 0: none yet,
  // and nothing to wait for.
  uint64_t recorded() const;
  bool IsReached(uint64_t number) const;
  // Blocks the calling thread, which must not be a stream's of this event.
  void WaitFor(uint64_t number) const;

 private:
  struct Counts;
  SharedEvent(int descriptor, Counts* counts) : descriptor_(descriptor), counts_(counts) {}
  static std::shared_ptr<SharedEvent> Map(int descriptor);

  const int descriptor_;
  Counts* const counts_;
};

// A stream's wait for a record of any process.
class SharedEventWait : public Work {
 public:
  SharedEventWait(std::shared_ptr<SharedEvent> event, uint64_t number)
      : event_(std::move(event)), number_(number) {}
  void Run(Stream& stream, bool skip) override;
  const char* name() const override { return "wait for an event of another process"; }
  bool is_operation() const override { return false; }

 private:
  const std::shared_ptr<SharedEvent> event_;
  const uint64_t number_;
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_IPC_EVENT_H_
