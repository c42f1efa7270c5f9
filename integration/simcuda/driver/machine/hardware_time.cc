#include "integration/simcuda/driver/machine/hardware_time.h"

#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/core/settings.h"

namespace simcuda {
namespace {

constexpr int64_t kSpinNs = 30'000;       // the end of a wait: a sleep does not end more exactly
constexpr int64_t kLatenessNs = 200'000;  // of a wait's end, at most so much is made good by the next call
constexpr int64_t kFreshNs = 200'000;     // ... which comes this soon

struct Threads {
  std::mutex mutex;
  std::unordered_map<int, uint64_t> cpu_ns;  // by the kernel's number of the thread; guarded by mutex
};

// A shared lock that lets the one who wants it alone in before those who come later: shared holders that
// overlap would else keep a load of code out for ever.
class FairSharedMutex {
 public:
  void lock_shared() {
    std::lock_guard<std::mutex> entry(entry_);
    mutex_.lock_shared();
  }
  void unlock_shared() { mutex_.unlock_shared(); }
  void lock() {
    entry_.lock();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    entry_.unlock();
  }

 private:
  std::mutex entry_;
  std::shared_mutex mutex_;
};

struct State {
  std::atomic<const HardwareProfile*> profile{nullptr};
  std::mutex profiles_mutex;
  std::vector<std::unique_ptr<const HardwareProfile>>
      profiles;                // all there ever were; guarded by profiles_mutex
  std::mutex mutex;            // guards the time lines
  int64_t memory_free_ns = 0;  // when each lock is free again
  int64_t context_free_ns = 0;
  // By Held: shared by the calls that hold it or wait for it, alone while code is loaded, since how long that
  // takes is not known before.
  FairSharedMutex load_locks[3];

  // Counts, stretched times.
  std::atomic<uint64_t> memory_ns{0}, longest_memory_ns{0};
  std::atomic<uint64_t> enqueues{0}, enqueue_wait_ns{0}, longest_enqueue_wait_ns{0};
  std::atomic<uint64_t> overruns{0}, overrun_ns{0};
  std::atomic<uint64_t> calls[kCallCount] = {}, call_ns[kCallCount] = {};
  Threads threads;
};
State& GetState() {
  static State* state = new State;  // never destroyed: threads outlive static destructors
  return *state;
}

void RaiseTo(std::atomic<uint64_t>* most, uint64_t value) {
  uint64_t now = most->load(std::memory_order_relaxed);
  while (now < value && !most->compare_exchange_weak(now, value)) {
  }
}

int64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A thread's own time line: the delay of its last wait is taken off the next call.
struct OwnTime {
  int64_t late_ns = 0;
  int64_t at_ns = 0;
  bool exact = false;  // sleeps of this thread end when they should
};
thread_local OwnTime t_time;

int64_t ThreadNow() {
  const int64_t now = NowNs();
  const OwnTime& own = t_time;
  return now - own.at_ns < kFreshNs ? now - own.late_ns : now;
}

// Sleeps, and spins only at the end.
void WaitUntil(int64_t time_ns) {
  OwnTime& own = t_time;
  if (!own.exact) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    own.exact = true;
  }
  if (time_ns - NowNs() > kSpinNs) SleepUntil(time_ns - kSpinNs);
  int64_t now = NowNs();
  while (now < time_ns) now = NowNs();
  own.late_ns = std::min(now - time_ns, kLatenessNs);
  own.at_ns = now;
}

bool EnqueuesWork(Call call) {
  return call == Call::kLaunch || call == Call::kGraphLaunch || call == Call::kCopy || call == Call::kFill ||
         call == Call::kEventRecord || call == Call::kStreamWait;
}

// Whether a call that holds `held` has to wait for who holds `other`.
bool WaitsFor(Held held, Held other) {
  return held == other ||
         (held == Held::kContext && other == Held::kMemory && GetSettings().hardware_waits.load() != 0);
}

// The times at which a call came, and between which it holds its lock.
struct Slot {
  int64_t came_ns, begin_ns, end_ns;
};
Slot TakeSlot(Call call, Held held, int64_t cost_ns) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  Slot slot = {ThreadNow(), 0, 0};
  slot.begin_ns = slot.came_ns;
  if (WaitsFor(held, Held::kMemory)) slot.begin_ns = std::max(slot.begin_ns, state.memory_free_ns);
  if (held == Held::kContext) slot.begin_ns = std::max(slot.begin_ns, state.context_free_ns);
  slot.end_ns = slot.begin_ns + cost_ns;
  if (held == Held::kMemory) state.memory_free_ns = slot.end_ns;
  if (held == Held::kContext) state.context_free_ns = slot.end_ns;
  return slot;
}

// The order in which one thread takes several load locks.
constexpr Held kLoadLockOrder[] = {Held::kContext, Held::kMemory, Held::kNothing};
Held HeldByLoads(const HardwareProfile& profile) {
  return profile.calls[static_cast<int>(Call::kModuleLoad)].held;
}
bool LoadsHold(Held by_loads, Held held) {
  return by_loads == Held::kEverything || (by_loads == held && held != Held::kNothing);
}
uint32_t BitOf(Held held) { return 1u << static_cast<int>(held); }
FairSharedMutex& LoadLock(Held held) { return GetState().load_locks[static_cast<int>(held)]; }

void Count(Call call, Held held, const Slot& slot, int64_t cost_ns) {
  State& state = GetState();
  const auto relaxed = std::memory_order_relaxed;
  state.calls[static_cast<int>(call)].fetch_add(1, relaxed);
  state.call_ns[static_cast<int>(call)].fetch_add(static_cast<uint64_t>(cost_ns), relaxed);
  if (held == Held::kMemory) {
    state.memory_ns.fetch_add(static_cast<uint64_t>(cost_ns), relaxed);
    RaiseTo(&state.longest_memory_ns, static_cast<uint64_t>(cost_ns));
  }
  if (!EnqueuesWork(call)) return;
  const auto waited = static_cast<uint64_t>(slot.begin_ns - slot.came_ns);
  state.enqueues.fetch_add(1, relaxed);
  state.enqueue_wait_ns.fetch_add(waited, relaxed);
  RaiseTo(&state.longest_enqueue_wait_ns, waited);
}

// "a100" is lib/simcuda/hardware/a100.json beside this library; anything with a dot or a slash is a file.
std::string FileOf(const std::string& name) {
  if (name.find_first_of("./") != std::string::npos) return name;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&GetState), &info) == 0) return name;
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "hardware/" + name + ".json";
}

}  // namespace

const HardwareProfile* ActiveProfile() { return GetState().profile.load(std::memory_order_acquire); }

bool ApplyHardware() {
  const Settings& settings = GetSettings();
  std::string name;
  {
    std::lock_guard<std::mutex> lock(GetSettings().hardware_mutex);
    name = settings.hardware;
  }
  std::unique_ptr<HardwareProfile> profile;
  if (!name.empty()) {
    profile = std::make_unique<HardwareProfile>();
    std::string error;
    const double scale = static_cast<double>(settings.time_scale_thousandths.load()) / 1000;
    const End end = settings.hardware_high.load() != 0 ? End::kHigh : End::kLow;
    if (!LoadProfile(FileOf(name), end, scale, profile.get(), &error)) {
      std::fprintf(stderr, "simcuda: the hardware profile %s: %s\n", FileOf(name).c_str(), error.c_str());
      return false;
    }
  }
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.profiles_mutex);
  state.profile.store(profile.get(), std::memory_order_release);
  if (profile != nullptr) state.profiles.push_back(std::move(profile));
  return true;
}

void CountOverrun(int64_t ns) {
  GetState().overruns.fetch_add(1, std::memory_order_relaxed);
  GetState().overrun_ns.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
}

CallTime::CallTime(Call call) : profile_(ActiveProfile()), call_(call) {
  if (profile_ != nullptr) cpu_at_start_ns_ = ThreadCpuNs();
}

CallTime::~CallTime() {
  if (profile_ == nullptr) return;
  State& state = GetState();
  for (const Held held : kLoadLockOrder) {
    if (shared_ & BitOf(held)) LoadLock(held).unlock_shared();
  }
  thread_local const int thread = static_cast<int>(syscall(SYS_gettid));
  const auto spent = static_cast<uint64_t>(ThreadCpuNs() - cpu_at_start_ns_);
  std::lock_guard<std::mutex> lock(state.threads.mutex);
  state.threads.cpu_ns[thread] += spent;
}

void CallTime::Start(uint64_t handles, uint64_t bytes, uint64_t empty_bytes) {
  if (profile_ == nullptr) return;
  const Held held = profile_->calls[static_cast<int>(call_)].held;
  for (const Held other : kLoadLockOrder) {
    if (!WaitsFor(held, other)) continue;
    LoadLock(other).lock_shared();
    shared_ |= BitOf(other);
  }
  const auto cost_ns = static_cast<int64_t>(profile_->NsOf(call_, handles, bytes, empty_bytes));
  const Slot slot = TakeSlot(call_, held, cost_ns);
  Count(call_, held, slot, cost_ns);
  end_ns_ = slot.end_ns;
}

void CallTime::Finish() const {
  if (profile_ != nullptr) WaitUntil(end_ns_);
}

ModuleLoadTime::ModuleLoadTime() : profile_(ActiveProfile()) {
  if (profile_ == nullptr) return;
  for (const Held held : kLoadLockOrder) {
    if (LoadsHold(HeldByLoads(*profile_), held)) LoadLock(held).lock();
  }
}

ModuleLoadTime::~ModuleLoadTime() {
  if (profile_ == nullptr) return;
  for (const Held held : kLoadLockOrder) {
    if (LoadsHold(HeldByLoads(*profile_), held)) LoadLock(held).unlock();
  }
}

void ModuleLoadTime::Spend(void (*wait_for_gpu)()) {
  if (profile_ != nullptr || GetSettings().module_load_waits.load() != 0) wait_for_gpu();
  if (profile_ == nullptr) return;
  const auto cost_ns = static_cast<int64_t>(profile_->NsOf(Call::kModuleLoad, 1, 0));
  // The load locks keep the others out, so that it needs no place on the time lines.
  const Slot slot = TakeSlot(Call::kModuleLoad, Held::kNothing, cost_ns);
  Count(Call::kModuleLoad, Held::kNothing, slot, cost_ns);
  WaitUntil(slot.end_ns);
}

}  // namespace simcuda

SIMCUDA_API int simcuda_get_hardware_stats(simcuda_hardware_stats* stats) {
  if (stats == nullptr || stats->struct_bytes < sizeof(size_t)) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::State& state = simcuda::GetState();
  const simcuda::HardwareProfile* profile = simcuda::ActiveProfile();
  simcuda_hardware_stats out = {};
  out.struct_bytes = stats->struct_bytes;
  out.time_scale = profile == nullptr ? 0 : profile->scale;
  out.memory_lock_ns = state.memory_ns;
  out.longest_memory_call_ns = state.longest_memory_ns;
  out.enqueues = state.enqueues;
  out.enqueue_wait_ns = state.enqueue_wait_ns;
  out.longest_enqueue_wait_ns = state.longest_enqueue_wait_ns;
  out.overruns = state.overruns;
  out.overrun_ns = state.overrun_ns;
  static_assert(SIMCUDA_CALLS == simcuda::kCallCount);
  for (int i = 0; i < SIMCUDA_CALLS; ++i) {
    out.calls[i] = state.calls[i];
    out.call_ns[i] = state.call_ns[i];
  }
  std::memcpy(stats, &out, std::min(out.struct_bytes, sizeof(out)));
  return CUDA_SUCCESS;
}

SIMCUDA_API void simcuda_reset_hardware_stats(void) {
  simcuda::State& state = simcuda::GetState();
  for (auto* counter : {&state.memory_ns, &state.longest_memory_ns, &state.enqueues, &state.enqueue_wait_ns,
                        &state.longest_enqueue_wait_ns, &state.overruns, &state.overrun_ns}) {
    *counter = 0;
  }
  for (int i = 0; i < simcuda::kCallCount; ++i) state.calls[i] = state.call_ns[i] = 0;
  std::lock_guard<std::mutex> lock(state.threads.mutex);
  state.threads.cpu_ns.clear();
}

SIMCUDA_API uint64_t simcuda_thread_cpu_ns(int thread) {
  simcuda::Threads& threads = simcuda::GetState().threads;
  std::lock_guard<std::mutex> lock(threads.mutex);
  const auto found = threads.cpu_ns.find(thread);
  return found == threads.cpu_ns.end() ? 0 : found->second;
}

SIMCUDA_API const char* simcuda_call_name(int call) {
  return call >= 0 && call < simcuda::kCallCount ? simcuda::kCallNames[call] : nullptr;
}
