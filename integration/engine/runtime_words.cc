// What Runtime says about the job as a whole: its facts for the lines of job_words.h and advice.h.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "integration/engine/job_words.h"
#include "integration/engine/runtime.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

constexpr size_t kBlocksNamed = 5;

}  // namespace

void Runtime::NoteFramework(const std::string& name) {
  if (framework_.load() != nullptr) return;
  auto own = std::make_unique<std::string>(name);
  const std::string* none = nullptr;
  if (framework_.compare_exchange_strong(none, own.get())) (void)own.release();
}

// One line at the first block; those of further devices are details.
void Runtime::ReportServing(int device, const allocator::ResidencyOptions& options) const {
  ServedJob job;
  if (const std::string* framework = framework_.load()) job.framework = *framework;
  job.device = device;
  (void)driver_->cuDeviceGetCount(&job.devices);
  job.budget_bytes = options.budget_bytes;
  job.device_bytes = total_bytes_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  job.host_bytes = host_cap_bytes_;
  job.disk = disk_paths_;
  job.evicts = options.evict;
  job.observes = settings_.Observes();
  job.rank = settings_.ranks.rank;
  job.ranks = settings_.ranks.size;
  int started = 0;
  for (const auto& residency : owned_) started += residency != nullptr ? 1 : 0;
  if (started > 1) return os::Log(os::LogLevel::kInfo, ServedLine(job));
  os::ReportLine(ServedLine(job));
}

AdviceFacts Runtime::FactsForAdvice() const {
  AdviceFacts facts;
  facts.least_recently_used = settings_.policy == PolicyKind::kLru;
  facts.strict = settings_.trust == Trust::kStrict;
  facts.audit = settings_.audit;
  facts.modelled_disk = settings_.io_model.Limits();
  facts.host_cap_bytes = host_cap_bytes_;
  return facts;
}

absl::Status Runtime::Explain(int device, const absl::Status& refused) const {
  const allocator::Residency* const residency = Existing(device);
  if (!absl::IsResourceExhausted(refused) || residency == nullptr) return refused;
  const NameOfIndex name = [this, device](policy::LaunchIndex index) { return NameOfLaunch(device, index); };
  const std::string blocks = LargestBlocksText(residency->LargestBlocks(kBlocksNamed), name);
  if (blocks.empty()) return refused;
  return allocator::WithWords(refused, absl::StrCat(std::string(refused.message()), ". ", blocks));
}

}  // namespace spillway::integration
