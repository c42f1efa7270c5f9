#include "integration/torch/trace_log.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {
namespace {

// The leak at thread exit is harmless: a thread that ends inside a compiled region has no further events.
thread_local std::vector<std::string> compile_contexts;

std::string JoinedCompileContext() {
  return compile_contexts.empty() ? "N/A" : compile_contexts.back();  // native's word for none
}

}  // namespace

void TraceLog::Configure(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                         RecordContext when, bool clear, const std::vector<std::string>& skip_actions) {
  os::MutexLock lock(&mu_);
  history_ = enabled;
  max_entries_ = std::max<size_t>(1, max_entries);
  recorder_.store(recorder);
  level_.store(enabled && recorder != nullptr ? when : RecordContext::NEVER);
  skipped_.clear();
  for (const std::string& action : skip_actions) {
    skipped_.insert(TraceActionNumber(action));
  }
  if (!enabled || clear) events_.clear();
  active_.store(history_ || !trackers_.empty());
}

void TraceLog::AddTracker(Tracker tracker) {
  os::MutexLock lock(&mu_);
  trackers_.push_back(std::move(tracker));
  active_.store(true);
}

TraceLog::Context TraceLog::Gather(RecordContext level) const {
  if (level_.load(std::memory_order_relaxed) < level) return nullptr;
  auto* recorder = recorder_.load();
  return recorder == nullptr ? nullptr : recorder();
}

void TraceLog::PushCompileContext(const std::string& text) { compile_contexts.push_back(text); }

void TraceLog::PopCompileContext() {
  if (!compile_contexts.empty()) compile_contexts.pop_back();
}

void TraceLog::Record(Entry::Action action, c10::DeviceIndex device, size_t address, size_t bytes,
                      void* stream, Context context, const std::string& user_metadata) {
  if (!active()) return;
  // History at level STATE keeps stacks of live blocks only, not of events.
  if (level_.load(std::memory_order_relaxed) < RecordContext::ALLOC) context = nullptr;
  Entry entry = MakeTraceEntry(
      {action, device, address, bytes, stream, std::move(context), JoinedCompileContext(), user_metadata});
  os::MutexLock lock(&mu_);
  for (const Tracker& tracker : trackers_) tracker(entry);
  if (!history_ || skipped_.contains(static_cast<int>(action))) return;
  std::deque<Entry>& events = events_[device];
  events.push_back(std::move(entry));
  while (events.size() > max_entries_) events.pop_front();
}

void TraceLog::MergeInto(std::vector<std::vector<Entry>>* traces) {
  auto to_nanos = clock_.makeConverter();
  os::MutexLock lock(&mu_);
  for (const auto& [device, events] : events_) {
    if (static_cast<size_t>(device) >= traces->size()) traces->resize(device + 1);
    std::vector<Entry>& trace = (*traces)[device];
    const auto middle = static_cast<std::ptrdiff_t>(trace.size());
    for (const Entry& event : events) {
      trace.push_back(event);
      trace.back().time_.t_ = to_nanos(event.time_.approx_t_) / 1000;  // microseconds, as native's
    }
    std::inplace_merge(trace.begin(), trace.begin() + middle, trace.end(),
                       [](const Entry& a, const Entry& b) { return a.time_.t_ < b.time_.t_; });
  }
}

}  // namespace spillway::integration
