// What a kernel, or a call of the driver, waits for until the test lets it go on. When the test ends it goes on in
// any case, so that a test that fails ends. Any thread; nothing fails.

#ifndef SPILLWAY_TESTS_ALLOCATOR_GO_AHEAD_H_
#define SPILLWAY_TESTS_ALLOCATOR_GO_AHEAD_H_

#include <atomic>
#include <functional>
#include <memory>

namespace spillway::allocator {

// To be declared after the device, whose end waits for what waits here.
class GoAhead {
 public:
  GoAhead() = default;
  ~GoAhead() { Give(); }
  GoAhead(const GoAhead&) = delete;
  GoAhead& operator=(const GoAhead&) = delete;

  void Give() {
    given_->store(true);
    given_->notify_all();
  }
  // A function that returns once it is given. It may outlive this object.
  std::function<void()> Waiter() const {
    return [given = given_] { given->wait(false); };
  }

 private:
  const std::shared_ptr<std::atomic<bool>> given_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_GO_AHEAD_H_
