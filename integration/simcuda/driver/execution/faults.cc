#include "integration/simcuda/driver/execution/faults.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "integration/simcuda/driver/core/log.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/stream.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/stats.h"
#include "integration/simcuda/driver/machine/stop.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

using Hex = unsigned long long;

// The signal handler's last message on this thread.
thread_local char t_fault_text[1024];

struct sigaction g_previous_segv;
struct sigaction g_previous_bus;

// Straight to the descriptor: stdio's lock may be held by the thread that faulted.
__attribute__((format(printf, 1, 2))) void PrintLine(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  const size_t bytes = std::min(static_cast<size_t>(length), sizeof(line) - 1);
  if (write(STDERR_FILENO, line, bytes) < 0) return;
}

// Mode fault. The thread of a stream leaves its kernel or copy. A thread that helps a running kernel (OpenMP)
// cannot: it is let in, and the kernel's context fails. Returns when the instruction may run again.
void EndAtFault(uint64_t address) {
  ++GetStats().missed_accesses;
  char name[256] = "";
  Stream* stream = CurrentStreamOfThread();
  if (stream != nullptr) stream->CopyRunningName(name, sizeof(name));
  if (t_after_fault != nullptr) {
    std::snprintf(
        t_fault_text, sizeof(t_fault_text),
        "device address 0x%llx was touched but is not mapped: %s; touched by kernel or copy \"%s\" on "
        "stream %llu",
        static_cast<Hex>(address), AddressText(address).c_str(), name, static_cast<Hex>(stream->id()));
    siglongjmp(*t_after_fault, 1);
  }
  Stream* helped = nullptr;
  ForEachStream([&](Stream& other) {
    if (helped == nullptr && other.RunsOperation() && other.CopyRunningName(name, sizeof(name)))
      helped = &other;
  });
  PrintLine(
      "simcuda: device address 0x%llx was touched but is not mapped: %s; touched by a thread beside \"%s\"\n",
      static_cast<Hex>(address), AddressText(address).c_str(), name);
  if (helped == nullptr || !GetAddressSpace().LetIn(address))
    StopLoudly();  // a host's own touch ends a process
  helped->context()->Fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel's helper thread touched unmapped memory");
}

void PrintAccessor(uint64_t address) {
  Stream* own = CurrentStreamOfThread();
  char name[256];
  if (own != nullptr && own->CopyRunningName(name, sizeof(name))) {
    PrintLine("simcuda: touched by kernel or copy \"%s\" on stream %llu (device %d)\n", name,
              static_cast<Hex>(own->id()), own->context()->device().ordinal());
  } else {
    PrintLine("simcuda: touched by a host thread (tid %ld), not by a kernel\n", syscall(SYS_gettid));
  }
  ForEachStream([own, &name](Stream& stream) {
    if (&stream == own || !stream.CopyRunningName(name, sizeof(name))) return;
    PrintLine("simcuda: at the same time stream %llu runs \"%s\"\n", static_cast<Hex>(stream.id()), name);
  });
}

void ChainTo(const struct sigaction& previous, int signal_number, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal_number, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    // The instruction runs again and faults again, now with the default action.
    signal(signal_number, SIG_DFL);
  } else {
    previous.sa_handler(signal_number);
  }
}

void OnFault(int signal_number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const uint64_t address = reinterpret_cast<uint64_t>(info->si_addr);
  AddressSpace& space = GetAddressSpace();
  const Mode mode = GetSettings().mode_now();
  if (!IsAlive() || mode == Mode::kOff || !space.pool().Contains(address)) {
    ChainTo(signal_number == SIGSEGV ? g_previous_segv : g_previous_bus, signal_number, info, context);
    errno = saved_errno;
    return;
  }
  if (info->si_code == SEGV_PKUERR) {  // in every mode as on hardware
    PrintLine("simcuda: device address 0x%llx was touched by who may not (SIMCUDA_PROTECTION_KEYS): %s\n",
              static_cast<Hex>(address), AddressText(address).c_str());
    PrintAccessor(address);
    ChainTo(signal_number == SIGSEGV ? g_previous_segv : g_previous_bus, signal_number, info, context);
    errno = saved_errno;
    return;
  }
  AddressInfo found;
  space.FindFromSignal(address, &found);
  if (found.mapped && found.mapping.accessible) {  // mapped by another thread since the fault
    errno = saved_errno;
    return;
  }
  if (mode == Mode::kFault) {
    EndAtFault(address);
    errno = saved_errno;
    return;
  }
  if (mode == Mode::kReport) {
    const uint64_t count = ++GetStats().missed_accesses;
    if (count <= 20) {
      PrintLine("simcuda: missed access %llu to 0x%llx: %s\n", static_cast<Hex>(count),
                static_cast<Hex>(address), AddressText(address).c_str());
      PrintAccessor(address);
    }
    if (!space.LetIn(address)) StopLoudly();
    errno = saved_errno;
    return;
  }
  PrintLine("simcuda: device address 0x%llx was touched but is not mapped: %s\n", static_cast<Hex>(address),
            AddressText(address).c_str());
  PrintAccessor(address);
  ++GetStats().missed_accesses;
  StopLoudly();
}

}  // namespace

thread_local sigjmp_buf* t_after_fault = nullptr;

void FailAfterFault(Stream& stream) { stream.context()->Fail(CUDA_ERROR_ILLEGAL_ADDRESS, t_fault_text); }

void InstallFaultHandler() {
  struct sigaction action = {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &g_previous_segv);
  sigaction(SIGBUS, &action, &g_previous_bus);
}

AddressText::AddressText(uint64_t address) {
  AddressInfo info;
  if (!GetAddressSpace().FindFromSignal(address, &info)) {
    std::snprintf(text_, sizeof(text_), "(its owner is not known)");
    return;
  }
  if (info.mapped) {
    const Mapping& mapping = info.mapping;
    std::snprintf(text_, sizeof(text_), "%s %llu [0x%llx, +%llu) on device %d, offset %llu, %s",
                  mapping.physical == nullptr ? "allocation" : "mapping", mapping.id, Hex{mapping.start},
                  Hex{mapping.size}, mapping.device == nullptr ? -1 : mapping.device->ordinal(),
                  Hex{address - mapping.start},
                  mapping.accessible ? "accessible" : "mapped, but cuMemSetAccess gave nobody access");
    return;
  }
  char history[192];
  GetAddressSpace().History(address, history, sizeof(history));
  if (info.reserved) {
    std::snprintf(text_, sizeof(text_), "nothing is mapped at offset %llu of reservation [0x%llx, +%llu)%s",
                  Hex{address - info.reservation_start}, Hex{info.reservation_start},
                  Hex{info.reservation_size}, history);
  } else {
    std::snprintf(text_, sizeof(text_), "no reservation and no allocation is there%s", history);
  }
}

void CheckNobodyTouches(uint64_t start, uint64_t size, const char* call) {
  const Mode mode = GetSettings().mode_now();
  if (mode == Mode::kOff) return;
  std::string user;
  uint64_t stream_id = 0;
  ForEachStream([&](Stream& stream) {
    if (!user.empty()) return;
    user = stream.FindTouching(start, size);
    stream_id = stream.id();
  });
  if (user.empty()) return;
  PrintLine("simcuda: %s of [0x%llx, +%llu) while %s on stream %llu will touch it\n", call,
            static_cast<Hex>(start), static_cast<Hex>(size), user.c_str(), static_cast<Hex>(stream_id));
  ++GetStats().misuses;
  if (mode == Mode::kStrict) StopLoudly();
}

}  // namespace simcuda
