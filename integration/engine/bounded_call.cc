#include "integration/engine/bounded_call.h"

#include <memory>
#include <thread>
#include <utility>

#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

struct Call {
  os::Mutex mu{os::LockRank::kRegistry};
  os::CondVar changed;
  bool ended ABSL_GUARDED_BY(mu) = false;
};

}  // namespace

bool RunWithin(std::chrono::milliseconds timeout, std::function<void()> work) {
  const auto call = std::make_shared<Call>();
  std::thread thread = os::StartThread("spillway-exit", [call, work = std::move(work)] {
    work();
    os::MutexLock lock(&call->mu);
    call->ended = true;
    call->changed.NotifyAll();
  });
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool ended = false;
  {
    os::MutexLock lock(&call->mu);
    while (!call->ended && std::chrono::steady_clock::now() < deadline) {
      call->changed.WaitFor(&call->mu, deadline - std::chrono::steady_clock::now());
    }
    ended = call->ended;
  }
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
  return ended;
}

}  // namespace spillway::integration
