#include "integration/engine/job_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/engine/profile_file.h"
#include "integration/engine/torch_swap.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/launch_reports.h"
#include "integration/profile/kernel_writes.h"
#include "io/os/log.h"

namespace spillway::integration {

using policy::FormFacts;

namespace {

// Rates waver all the time. One within a tenth of what is kept plans the same, and is no reason to write.
void KeepRate(double measured, double* rate) {
  if (measured > 0 && std::abs(measured - *rate) > *rate / 10) *rate = measured;
}

}  // namespace

ProfileKey FindProfileKey(const allocator::CudaDriver& driver, int device) {
  ProfileKey key;
  const auto release = TorchRelease(MappedTorchLibrary());
  key.framework = release.ok() ? *release : "none";
  int version = 0;
  if (driver.cuDriverGetVersion(&version) == CUDA_SUCCESS)
    key.driver = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  std::array<char, 256> name{};
  CUdevice handle = 0;
  if (driver.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
      driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, handle) == CUDA_SUCCESS)
    key.device = name.data();
  return key;
}

JobProfile::JobProfile(std::optional<std::string> path, const Devices* devices, FunctionRegistry* functions)
    : asked_(std::move(path)), devices_(devices), functions_(functions) {}

void JobProfile::Begin(const ProfileKey& key, const std::vector<std::string>& directories) {
  path_ = asked_ ? *asked_ : DefaultProfilePath(key);
  drives_ = DrivesNumber(directories);
  before_.key = key;
  if (path_.empty()) return;
  auto read = ReadProfile(path_);
  if (!read.ok()) return ReportUnusable(read.status());
  if (read->key != key) {
    os::Log(os::LogLevel::kInfo,
            absl::StrCat("the profile ", path_, " is of ", read->key.framework, ", CUDA ", read->key.driver,
                         ", ", read->key.device, ", and is not used"));
    return;
  }
  kept_ = ProfileText(*read);
  before_ = *std::move(read);
  rates_ = before_.rates;
  directories_ = before_.directories;
  os::Log(os::LogLevel::kInfo,
          absl::StrCat("the profile ", path_, " knows ", before_.writes.size(), " forms of kernels"));
}

void JobProfile::ReportUnusable(const absl::Status& why) const {
  const std::string text(why.message());
  if (absl::IsDataLoss(why))
    return os::ReportLine(
        absl::StrCat("the profile is damaged and ignored; the next run that spills writes a new one. ", text,
                     ". It can be deleted (SPILLWAY_PROFILE)"));
  if (!absl::IsNotFound(why)) os::Log(os::LogLevel::kInfo, absl::StrCat("the profile is not used: ", text));
}

KnownRates JobProfile::rates() const {
  const ProfileRates& rates = before_.rates;
  KnownRates known{rates.link_in, rates.link_out, rates.link_in_both, rates.link_out_both, 0, 0};
  if (rates.drives == drives_) {
    known.disk_in = rates.disk_in;
    known.disk_out = rates.disk_out;
  }
  return known;
}

io::DriveSpeed JobProfile::SpeedOf(const std::string& directory) const {
  const uint64_t number = DrivesNumber({directory});
  const auto found = std::ranges::find(before_.directories, number, &DirectorySpeed::directory);
  return found == before_.directories.end() ? io::DriveSpeed() : found->speed;
}

void JobProfile::GuessSpeeds(io::SpillStore* disk) const {
  const std::vector<io::DirectoryStats> directories = disk->stats().directories;
  for (size_t i = 0; i < directories.size(); ++i) disk->GuessSpeed(i, SpeedOf(directories[i].path));
}

std::shared_ptr<const policy::WriteFacts> JobProfile::Writes(int device, allocator::Residency* residency) {
  if (residency == nullptr) return nullptr;
  DeviceGuesses& guesses = guesses_[static_cast<size_t>(device)];
  if (!std::exchange(guesses.profile, true)) residency->GuessWrites(before_.writes);
  if (functions_ != nullptr) {
    std::vector<FormFacts> known;
    for (const FunctionInfo* const info : functions_->LearntSince(guesses.seen)) {
      ++guesses.seen;
      if (info->name.empty()) continue;
      for (const FormFacts& form : KnownWrites(info->name, info->tag)) known.push_back(form);
    }
    if (!known.empty()) residency->GuessWrites(known);
  }
  return residency->LearntWrites();
}

// Whether the tag is that of a name, and the same in the next run: not that of a handle, or of a graph.
bool JobProfile::IsOfName(uint64_t tag) const {
  if (functions_ != nullptr) {
    if (const FunctionInfo* const info = functions_->FindByTag(tag)) return !info->name.empty();
  }
  const uint64_t graphs = RowTraits<Row::cuGraphLaunch>::kInfo.tag;
  return (tag ^ graphs) > 0xffff && !CallOfTag(tag).empty();
}

JobFacts JobProfile::Learnt() {
  std::vector<FormFacts> writes;
  bool first = true;
  devices_->ForEach([&](const ServedDevice& served) {
    if (const auto facts = served.residency->LearntWrites()) {
      std::vector<FormFacts> settled = facts->SettledForms();
      std::erase_if(settled, [this](const FormFacts& form) { return !IsOfName(form.form.tag); });
      writes = MergedWrites(std::move(writes), settled);
    }
    if (!std::exchange(first, false)) return;
    const allocator::MachineStats machine = served.residency->Machine();
    KeepRate(machine.host_in_rate, &rates_.link_in);
    KeepRate(machine.host_out_rate, &rates_.link_out);
    KeepRate(machine.host_in_both_rate, &rates_.link_in_both);
    KeepRate(machine.host_out_both_rate, &rates_.link_out_both);
    if (machine.disk_in_rate <= 0 && machine.disk_out_rate <= 0) return;
    if (rates_.drives != drives_) rates_.disk_in = rates_.disk_out = 0;
    rates_.drives = drives_;
    KeepRate(machine.disk_in_rate, &rates_.disk_in);
    KeepRate(machine.disk_out_rate, &rates_.disk_out);
  });
  return {before_.key, rates_, directories_, MergedWrites(std::move(writes), before_.writes)};
}

// Those of this run come first. The others keep their order and their speeds.
void JobProfile::LearnSpeeds(std::span<const io::DirectoryStats> directories) {
  for (const io::DirectoryStats& now : directories) {
    const uint64_t number = DrivesNumber({now.path});
    auto known = std::ranges::find(directories_, number, &DirectorySpeed::directory);
    if (known == directories_.end()) {
      if (now.speed == io::DriveSpeed()) continue;
      known = directories_.insert(directories_.begin(), {number, {}});
    }
    KeepRate(now.speed.read, &known->speed.read);
    KeepRate(now.speed.write, &known->speed.write);
  }
  std::ranges::stable_partition(directories_, [&](const DirectorySpeed& known) {
    return std::ranges::any_of(directories,
                               [&](const auto& now) { return DrivesNumber({now.path}) == known.directory; });
  });
}

void JobProfile::Keep(uint64_t spilled_bytes, std::span<const io::DirectoryStats> directories) {
  if (path_.empty() || spilled_bytes == 0) return;
  LearnSpeeds(directories);
  std::string text = ProfileText(Learnt());
  if (text == kept_) return;
  const absl::Status written = WriteProfile(path_, text);
  if (written.ok()) {
    kept_ = std::move(text);
    return;
  }
  if (std::exchange(failed_, true)) return;
  const std::string line = absl::StrCat("SPILLWAY_PROFILE: the facts of this run are not kept for the next: ",
                                        std::string(written.message()));
  if (asked_)
    os::ReportLine(line);
  else
    os::Log(os::LogLevel::kInfo, line);
}

}  // namespace spillway::integration
