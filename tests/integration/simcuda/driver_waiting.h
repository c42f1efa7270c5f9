// How the tests of the stand-in driver make an order: kernels that run until the test lets them end, calls of the host
// that wait for kernels and are known to, and time for streams to do what they should not.
#ifndef SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_WAITING_H_
#define SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_WAITING_H_

#include <unistd.h>

#include <atomic>

#include "tests/fakes/gate.h"
#include "tests/fakes/thread_state.h"
#include "tests/fakes/wait_until.h"
#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {

using spillway::tests::Gate;
using spillway::tests::ThreadWaits;
using spillway::tests::WaitUntil;

// A call of the host that may have to wait for a kernel. The kernel's body asks how it goes with it.
class HostCall {
 public:
  template <typename F>
  void Run(F call) {
    thread_ = gettid();
    begun_ = true;
    call();
    returned_ = true;
  }
  bool begun() const { return begun_; }
  // Until it waits, or has returned without.
  void UntilItWaits() const {
    EXPECT_TRUE(WaitUntil([this] { return returned_ || (begun_ && ThreadWaits(thread_)); }));
  }
  void UntilItReturns() const {
    EXPECT_TRUE(WaitUntil([this] { return returned_.load(); })) << "it waits for the kernel";
  }

 private:
  std::atomic<pid_t> thread_{0};
  std::atomic<bool> begun_{false}, returned_{false};
};

// What waits for nothing has run afterwards, as likely as not: a stream of its own has done fifty kernels, one after
// the other, each with a wake-up of its thread and of this one.
inline void LetStreamsRun() {
  static const Kernel* const nothing = new Kernel("nothing_meanwhile", 0, [](uint64_t*) {});
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(nothing->Launch(stream, {}), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
}

}  // namespace simcuda_test

#endif  // SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_WAITING_H_
