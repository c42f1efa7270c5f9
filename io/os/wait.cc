#include "io/os/wait.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/os/log.h"

namespace spillway::os {
namespace {

constexpr int64_t kFirstLine = 10 * kSecond;
constexpr int64_t kSecondLine = 60 * kSecond;
constexpr int64_t kBetweenLines = 300 * kSecond;

// Time from a wait's beginning to its next line, when `lines` were reported.
int64_t DueAfter(int lines) {
  if (lines == 0) return kFirstLine;
  if (lines == 1) return kSecondLine;
  return kSecondLine + (lines - 1) * kBetweenLines;
}

}  // namespace

const WaitNames& NamesOf(WaitKind kind) {
  static constexpr WaitNames kNames[] = {
      {"chunks", "device memory"},
      {"arrival", "bytes to come back"},
      {"run_ahead", "the bound on uncompleted work"},
      {"end_of_transfer", "the end of a transfer"},
      {"cache_release", "cached memory to be released"},
      {"pause", "a pause"},
      {"share", "device memory that other jobs have"},
      {"audit", "its turn in the audit"},
      {"disk_growth", "spill files to grow"},
      {"pinning", "host memory to be pinned"},
      {"drive", "a drive"},
      {"read_sections", "launches that are being made"},
      {"driver_call", "a call of the driver"},
  };
  static_assert(std::size(kNames) == static_cast<size_t>(WaitKind::kCount));
  return kNames[static_cast<int>(kind)];
}

WaitList::WaitList(const Clock* clock, LineSink sink, std::chrono::nanoseconds limit)
    : clock_(clock), sink_(sink ? std::move(sink) : LineSink(&ReportLine)), limit_nanos_(limit.count()) {}

WaitList::~WaitList() = default;

WaitList::Entries::iterator WaitList::Enter(WaitKind kind, std::string subject) {
  Entry entry;
  entry.kind = kind;
  entry.subject = std::move(subject);
  entry.thread = static_cast<int>(syscall(SYS_gettid));
  entry.since = clock_->NowNanos();
  MutexLock lock(&mu_);
  return entries_.insert(entries_.end(), std::move(entry));
}

void WaitList::Leave(Entries::iterator entry) {
  const int64_t now = clock_->NowNanos();
  MutexLock lock(&mu_);
  Totals& totals = totals_[static_cast<size_t>(entry->kind)];
  ++totals.ended;
  totals.nanos += static_cast<uint64_t>(std::max<int64_t>(0, now - entry->since));
  entries_.erase(entry);
}

std::string WaitList::LineOf(const Entry& entry, int64_t now) const {
  return "waits " + std::to_string((now - entry.since) / kSecond) + " s for " + NamesOf(entry.kind).text +
         (entry.subject.empty() ? "" : ": " + entry.subject) + " (thread " + std::to_string(entry.thread) +
         ")";
}

void WaitList::Scan() {
  const int64_t now = clock_->NowNanos();
  std::vector<std::string> lines;
  {
    MutexLock lock(&mu_);
    for (Entry& entry : entries_) {
      if (now - entry.since < kFirstLine) continue;
      if (now - entry.since < DueAfter(entry.lines)) continue;
      while (now - entry.since >= DueAfter(entry.lines)) ++entry.lines;
      lines.push_back(LineOf(entry, now));
    }
  }
  for (const std::string& line : lines) sink_(line);
}

std::vector<WaitList::Entry> WaitList::UnderWay() const {
  MutexLock lock(&mu_);
  std::vector<Entry> entries(entries_.begin(), entries_.end());
  std::ranges::stable_sort(entries, {}, &Entry::since);
  return entries;
}

std::array<WaitList::Totals, static_cast<size_t>(WaitKind::kCount)> WaitList::Metrics() const {
  const int64_t now = clock_->NowNanos();
  MutexLock lock(&mu_);
  auto totals = totals_;
  for (const Entry& entry : entries_) {
    Totals& of_kind = totals[static_cast<size_t>(entry.kind)];
    ++of_kind.now;
    of_kind.longest_now_nanos =
        std::max(of_kind.longest_now_nanos, static_cast<uint64_t>(std::max<int64_t>(0, now - entry.since)));
  }
  return totals;
}

std::string WaitList::Describe() const {
  const int64_t now = clock_->NowNanos();
  std::string text;
  for (const Entry& entry : UnderWay()) {
    if (now - entry.since < kSecond) break;
    text += (text.empty() ? "" : "; ") + LineOf(entry, now);
  }
  return text;
}

void Wait::SetSubject(std::string subject) {
  MutexLock lock(&list_->mu_);
  entry_->subject = std::move(subject);
}

std::chrono::nanoseconds Wait::Left() const {
  if (list_->limit_nanos_ <= 0) return std::chrono::nanoseconds::max();
  const int64_t waited = list_->clock_->NowNanos() - since_;
  return std::chrono::nanoseconds(std::max<int64_t>(0, list_->limit_nanos_ - waited));
}

absl::Status Wait::Check() const {
  if (Left() > std::chrono::nanoseconds::zero()) return absl::OkStatus();
  const int64_t now = list_->clock_->NowNanos();
  MutexLock lock(&list_->mu_);
  return absl::DeadlineExceededError("gave up as SPILLWAY_WAIT_LIMIT says: " + list_->LineOf(*entry_, now));
}

}  // namespace spillway::os
