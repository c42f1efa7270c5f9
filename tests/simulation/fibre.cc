#include "tests/simulation/fibre.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SPILLWAY_FIBRE_ASAN 1
#endif

#if defined(__x86_64__)
// Saves what the callee must keep, and swaps stack pointers.
extern "C" void SpillwaySimulationSwitch(void** from, void* to);
asm(R"(
.text
.globl SpillwaySimulationSwitch
.hidden SpillwaySimulationSwitch
.type SpillwaySimulationSwitch, @function
SpillwaySimulationSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size SpillwaySimulationSwitch, .-SpillwaySimulationSwitch
)");
#endif

namespace spillway::simulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
std::vector<void*> unused_stacks;
Fibre* entering = nullptr;  // whose body is about to begin
Fibre* left = nullptr;      // that was switched from last

void* TakeStack() {
  if (!unused_stacks.empty()) {
    void* const stack = unused_stacks.back();
    unused_stacks.pop_back();
#ifdef SPILLWAY_FIBRE_ASAN
    // Of a fibre that was left in the middle of its frames.
    ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack) + 4096, kStackBytes - 4096);
#endif
    return stack;
  }
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) std::abort();
  mprotect(stack, 4096, PROT_NONE);  // an overflow is a fault, not another fibre's wrong variable
  return stack;
}

}  // namespace

Fibre::Fibre(std::function<void()> body) : body_(std::move(body)), stack_(TakeStack()) {
  bottom_ = stack_;
  bytes_ = kStackBytes;
#if defined(__x86_64__)
  auto* top = reinterpret_cast<uint64_t*>(static_cast<char*>(stack_) + kStackBytes);
  *--top = 0;  // where Enter would return to; keeps the alignment that a call leaves
  *--top = reinterpret_cast<uint64_t>(&Fibre::Enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  pointer_ = top;
#else
  auto* const context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, &Fibre::Enter, 0);
  pointer_ = context;
#endif
}

Fibre::~Fibre() {
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(pointer_);
#endif
  if (stack_ != nullptr) unused_stacks.push_back(stack_);
}

void Fibre::Enter() {
  Fibre* const self = entering;
#ifdef SPILLWAY_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &left->bottom_, &left->bytes_);
#endif
  self->body_();
  std::abort();
}

void Fibre::Switch(Fibre* from, Fibre* to) {
  entering = to;
  left = from;
#ifdef SPILLWAY_FIBRE_ASAN
  __sanitizer_start_switch_fiber(&from->sanitizer_stack_, to->bottom_, to->bytes_);
#endif
#if defined(__x86_64__)
  SpillwaySimulationSwitch(&from->pointer_, to->pointer_);
#else
  if (from->pointer_ == nullptr) from->pointer_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from->pointer_), static_cast<ucontext_t*>(to->pointer_));
#endif
#ifdef SPILLWAY_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(from->sanitizer_stack_, &left->bottom_, &left->bytes_);
#endif
}

}  // namespace spillway::simulation
