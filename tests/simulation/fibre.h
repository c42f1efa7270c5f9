// Fibre: a stack of its own and the switch to and from it. By hand on x86-64, by ucontext elsewhere. Stacks
// are kept for the next fibre. Each switch is made known to AddressSanitizer.

#ifndef SPILLWAY_TESTS_SIMULATION_FIBRE_H_
#define SPILLWAY_TESTS_SIMULATION_FIBRE_H_

#include <cstddef>
#include <functional>

namespace spillway::simulation {

class Fibre {
 public:
  // Of the code that is running now: nothing is made, it is only switched from and back to.
  Fibre() = default;
  // `body` runs at the first switch to it and must not return: it switches away for good.
  explicit Fibre(std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // Goes on with `to`; returns when somebody switches back.
  static void Switch(Fibre* from, Fibre* to);

 private:
  static void Enter();

  std::function<void()> body_;
  void* stack_ = nullptr;    // lowest address
  void* pointer_ = nullptr;  // its stack pointer while it does not run, or its ucontext
  void* sanitizer_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_FIBRE_H_
