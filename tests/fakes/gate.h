// What a kernel, or a call of the driver, waits at until the test opens it. At the end of its scope it opens in any
// case, so that a test that fails ends. Any thread; nothing fails.

#ifndef SPILLWAY_TESTS_FAKES_GATE_H_
#define SPILLWAY_TESTS_FAKES_GATE_H_

#include <atomic>
#include <functional>
#include <memory>

namespace spillway::tests {

// To be declared after the device, whose end waits for what waits here.
class Gate {
 public:
  Gate() = default;
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open() const {
    open_->store(true);
    open_->notify_all();
  }
  // A function that returns once the gate is open. It may outlive this object.
  std::function<void()> Wait() const {
    return [open = open_] { open->wait(false); };
  }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spillway::tests

#endif  // SPILLWAY_TESTS_FAKES_GATE_H_
