#include "integration/profile/job_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/store/checksum.h"

namespace spillway::integration {
namespace {

using policy::FormFacts;

constexpr std::string_view kHead = "spillway-profile ";
constexpr std::string_view kEnd = "checksum ";
constexpr size_t kEndBytes = kEnd.size() + 32 + 1;
constexpr double kMaxRate = 1e15;
constexpr uint64_t kSeed = kProfileVersion;
constexpr size_t kMaxNameBytes = 256;

// One line, whatever the driver says.
std::string Line(std::string_view text) {
  std::string line(text.substr(0, kMaxNameBytes));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

std::string ChecksumLine(std::string_view text) {
  const io::Checksum sum = io::ComputeChecksum(text.data(), text.size(), kSeed);
  return absl::StrFormat("checksum %016x%016x\n", sum.high, sum.low);
}

std::string LineOf(const FormFacts& facts) {
  return absl::StrFormat("writes %016x %d %x %x\n", facts.form.tag, facts.form.blocks, facts.reads,
                         facts.writes);
}

// The words of one line, taken from the front.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  bool Take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  template <typename Number>
  bool Take(Number* number, int base) {
    if (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *number, base);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }
  bool TakeRate(double* rate) {
    uint64_t number = 0;
    if (!Take(&number, 10) || static_cast<double>(number) > kMaxRate) return false;
    *rate = static_cast<double>(number);
    return true;
  }
  bool ended() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

uint64_t Number(double rate) {
  return rate > 0 && rate <= kMaxRate ? static_cast<uint64_t>(std::llround(rate)) : 0;
}

bool ReadLine(std::string_view line, JobFacts* facts) {
  Words words(line);
  for (const auto& [word, target] :
       {std::pair("torch ", &facts->key.framework), std::pair("driver ", &facts->key.driver),
        std::pair("device ", &facts->key.device)}) {
    if (!words.Take(word)) continue;
    *target = words.rest();
    return true;
  }
  ProfileRates& rates = facts->rates;
  if (words.Take("link"))
    return words.TakeRate(&rates.link_in) && words.TakeRate(&rates.link_out) &&
           words.TakeRate(&rates.link_in_both) && words.TakeRate(&rates.link_out_both) && words.ended();
  if (words.Take("drives"))
    return words.Take(&rates.drives, 16) && words.TakeRate(&rates.disk_in) &&
           words.TakeRate(&rates.disk_out) && words.ended();
  if (words.Take("directory")) {
    DirectorySpeed& directory = facts->directories.emplace_back();
    return facts->directories.size() <= kMaxProfileDirectories && words.Take(&directory.directory, 16) &&
           words.TakeRate(&directory.speed.read) && words.TakeRate(&directory.speed.write) && words.ended();
  }
  FormFacts form;
  if (!words.Take("writes") || !words.Take(&form.form.tag, 16) || !words.Take(&form.form.blocks, 10) ||
      !words.Take(&form.reads, 16) || !words.Take(&form.writes, 16) || !words.ended())
    return false;
  facts->writes.push_back(form);
  return (form.reads & form.writes) == 0;
}

absl::Status Damaged(std::string_view why) {
  return absl::DataLossError(absl::string_view(why.data(), why.size()));
}

}  // namespace

uint64_t DrivesNumber(const std::vector<std::string>& directories) {
  std::string text;
  for (const std::string& directory : directories) absl::StrAppend(&text, directory, "\n");
  return io::ComputeChecksum(text.data(), text.size(), kSeed).low;
}

std::string ProfileText(const JobFacts& facts) {
  std::string text = absl::StrCat("spillway-profile ", kProfileVersion, "\n");
  absl::StrAppend(&text, "torch ", Line(facts.key.framework), "\n");
  absl::StrAppend(&text, "driver ", Line(facts.key.driver), "\n");
  absl::StrAppend(&text, "device ", Line(facts.key.device), "\n");
  const ProfileRates& rates = facts.rates;
  absl::StrAppend(&text, "link ", Number(rates.link_in), " ", Number(rates.link_out), " ",
                  Number(rates.link_in_both), " ", Number(rates.link_out_both), "\n");
  absl::StrAppendFormat(&text, "drives %016x %d %d\n", rates.drives, Number(rates.disk_in),
                        Number(rates.disk_out));
  for (const DirectorySpeed& one :
       std::span(facts.directories).first(std::min(facts.directories.size(), kMaxProfileDirectories)))
    absl::StrAppendFormat(&text, "directory %016x %d %d\n", one.directory, Number(one.speed.read),
                          Number(one.speed.write));
  for (const FormFacts& form : facts.writes) {
    const std::string line = LineOf(form);
    if (text.size() + line.size() + kEndBytes > kMaxProfileBytes) break;
    text += line;
  }
  return text + ChecksumLine(text);
}

absl::StatusOr<JobFacts> ParseProfile(std::string_view text) {
  if (text.size() > kMaxProfileBytes) return Damaged("it is larger than 64 KiB");
  if (!text.starts_with(kHead)) return Damaged("it does not begin as a profile");
  Words head(text.substr(kHead.size(), text.find('\n') - kHead.size()));
  int version = 0;
  if (!head.Take(&version, 10) || !head.ended()) return Damaged("it does not begin as a profile");
  if (version != kProfileVersion) return absl::UnimplementedError("it is of another version of Spillway");
  if (text.size() < kEndBytes ||
      ChecksumLine(text.substr(0, text.size() - kEndBytes)) != text.substr(text.size() - kEndBytes))
    return Damaged("its checksum is wrong");
  text.remove_suffix(kEndBytes);
  text.remove_prefix(text.find('\n') + 1);
  JobFacts facts;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos || !ReadLine(text.substr(0, end), &facts))
      return Damaged("a line of it is none of a profile");
    text.remove_prefix(end + 1);
  }
  return facts;
}

std::vector<FormFacts> MergedWrites(std::vector<FormFacts> learnt, const std::vector<FormFacts>& before) {
  struct Hash {
    size_t operator()(const policy::LaunchForm& form) const {
      return static_cast<size_t>((form.tag ^ form.blocks) * 0x9e3779b97f4a7c15u);
    }
  };
  std::unordered_map<policy::LaunchForm, size_t, Hash> places;
  for (size_t i = 0; i < learnt.size(); ++i) places[learnt[i].form] = i;
  for (const FormFacts& old : before) {
    const auto found = places.find(old.form);
    if (found == places.end()) {
      learnt.push_back(old);
      continue;
    }
    FormFacts& now = learnt[found->second];
    const uint64_t known = now.reads | now.writes;
    now.reads |= old.reads & ~known;
    now.writes |= old.writes & ~known;
  }
  return learnt;
}

}  // namespace spillway::integration
