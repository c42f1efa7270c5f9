// The simulation's form of io/os/atomic.h: every access is a switch point, and a store that is not
// sequentially consistent goes through the task's store buffer, as on x86: the task's own later loads may
// overtake it, its later stores may not. Locked instructions and sequentially consistent stores drain the
// buffer. Outside of a run: plain memory.

#ifndef SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_ATOMIC_H_
#define SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_ATOMIC_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "tests/simulation/scheduler.h"

namespace spillway::os {

template <typename T>
class Atomic {
 public:
  constexpr Atomic() noexcept : value_() {}
  constexpr Atomic(T value) noexcept : value_(value) {}  // NOLINT: as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    simulation::Scheduler* const scheduler = simulation::Scheduler::current();
    if (scheduler == nullptr) return value_;
    scheduler->SwitchPoint();
    return Now(scheduler);
  }
  operator T() const { return load(); }  // NOLINT: as std::atomic

  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    simulation::Scheduler* const scheduler = simulation::Scheduler::current();
    if (scheduler != nullptr) {
      scheduler->SwitchPoint();
      if (order != std::memory_order_seq_cst && scheduler->store_buffers()) {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(T));
        scheduler->Store(&value_, sizeof(T), bits);
        return;
      }
      scheduler->DrainMine();
    }
    value_ = value;
  }
  T operator=(T value) {  // NOLINT: as std::atomic
    store(value);
    return value;
  }

  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    Lock();
    const T before = value_;
    value_ = value;
    return before;
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
    Lock();
    if (std::memcmp(&value_, &expected, sizeof(T)) != 0) {
      expected = value_;
      return false;
    }
    value_ = value;
    return true;
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, value, order);
  }
  template <typename D>
  T fetch_add(D more, std::memory_order = std::memory_order_seq_cst) {
    Lock();
    const T before = value_;
    value_ = static_cast<T>(value_ + more);
    return before;
  }
  template <typename D>
  T fetch_sub(D less, std::memory_order = std::memory_order_seq_cst) {
    Lock();
    const T before = value_;
    value_ = static_cast<T>(value_ - less);
    return before;
  }
  T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) {
    Lock();
    const T before = value_;
    value_ = static_cast<T>(value_ | bits);
    return before;
  }
  T operator++() { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) { return fetch_add(1); }
  T operator--() { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) { return fetch_sub(1); }
  T operator+=(T more) { return static_cast<T>(fetch_add(more) + more); }
  T operator-=(T less) { return static_cast<T>(fetch_sub(less) - less); }

 private:
  static_assert(sizeof(T) <= sizeof(uint64_t));

  T Now(simulation::Scheduler* scheduler) const {
    uint64_t bits = 0;
    if (!scheduler->Forward(&value_, &bits)) return value_;
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  static void Lock() {
    simulation::Scheduler* const scheduler = simulation::Scheduler::current();
    if (scheduler == nullptr) return;
    scheduler->SwitchPoint();
    scheduler->DrainMine();
  }

  T value_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_ATOMIC_H_
