#include "allocator/driver/refusals.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "io/os/per_thread.h"

namespace spillway::allocator {
namespace {

// The readers of a text add this prefix.
constexpr std::string_view kOurName = "Spillway: ";

// This type has no destructor, because hooks also run in destructors of other thread-local objects.
struct ThreadText {
  uint64_t owner;  // the Refusals' id
  bool call;       // noted by RecordCall, not taken yet
  char text[Refusals::kMaxTextBytes];
};

std::string_view WordsOf(const absl::Status& why) {
  const auto message = why.message();
  std::string_view words(message.data(), message.size());
  if (words.starts_with(kOurName)) words.remove_prefix(kOurName.size());
  return words;
}

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Refusals::Refusals() : id_(NextId()) {}

void Refusals::Keep(const absl::Status& why, bool call) {
  const std::string_view words = WordsOf(why);
  const size_t kept = std::min(words.size(), kMaxTextBytes - 1);
  os::PerThread<ThreadText>().owner = id_;
  os::PerThread<ThreadText>().call = call;
  std::memcpy(os::PerThread<ThreadText>().text, words.data(), kept);
  os::PerThread<ThreadText>().text[kept] = 0;
  try {
    os::MutexLock lock(&mu_);
    latest_ = words;
  } catch (const std::bad_alloc&) {  // the thread's own words need no memory
  }
}

void Refusals::Record(const absl::Status& why) {
  if (!why.ok()) Keep(why, false);
}

void Refusals::RecordCall(const absl::Status& why) {
  if (why.ok()) return;
  Keep(why, true);
  if (const Listener listener = listener_.load(std::memory_order_acquire)) listener();
}

const char* Refusals::OfThisThread() const {
  return os::PerThread<ThreadText>().owner == id_ ? os::PerThread<ThreadText>().text : "";
}

void Refusals::Forget() {
  if (os::PerThread<ThreadText>().owner != id_) return;
  os::PerThread<ThreadText>().call = false;
  os::PerThread<ThreadText>().text[0] = 0;
}

bool Refusals::TakeCall() {
  if (os::PerThread<ThreadText>().owner != id_ || !os::PerThread<ThreadText>().call) return false;
  os::PerThread<ThreadText>().call = false;
  return true;
}

std::string Refusals::Latest() const {
  os::MutexLock lock(&mu_);
  return latest_;
}

}  // namespace spillway::allocator
