#include "tests/policy/streams/stream.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::policy {
namespace {

class Reader {
 public:
  // False: the line has not the form of any kind.
  bool Read(const std::string& line) {
    std::istringstream words(line);
    char kind = 0;
    words >> kind;
    switch (kind) {
      case 'A': return ReadAllocation(&words);
      case 'F': return ReadFree(&words);
      case 'L': return ReadLaunch(&words);
      case 'O': return ReadFact(&words);
      case 'W': return true;  // how much was known of writes by then
      default: return false;
    }
  }
  Stream stream;

 private:
  bool ReadAllocation(std::istringstream* words) {
    TraceBlock block = 0;
    Bytes bytes = 0;
    if (!(*words >> block >> bytes) || bytes <= 0 || !out_.insert(block).second) return false;
    if (stream.sizes.try_emplace(block, bytes).first->second != bytes) return false;
    stream.trace.AddAllocate(block, bytes);
    out_bytes_ += bytes;
    stream.peak_bytes = std::max(stream.peak_bytes, out_bytes_);
    return true;
  }
  bool ReadFree(std::istringstream* words) {
    TraceBlock block = 0;
    if (!(*words >> block) || out_.erase(block) == 0) return false;
    stream.trace.AddFree(block);
    out_bytes_ -= stream.sizes.at(block);
    return true;
  }
  bool ReadLaunch(std::istringstream* words) {
    uint64_t index = 0, tag = 0, mark = 0, unused = 0;
    if (!(*words >> index >> std::hex >> tag >> std::dec >> mark) || index != stream.trace.end())
      return false;
    for (int i = 0; i < 4; ++i) *words >> unused;
    std::vector<TraceBlock> blocks;
    for (TraceBlock block = 0; *words >> block;) {
      if (!out_.contains(block)) return false;
      blocks.push_back(block);
    }
    if (mark != 0) stream.marks.push_back(index);
    blocks_of_[tag].insert(static_cast<uint32_t>(blocks.size()));
    stream.trace.AddLaunch(tag, blocks);
    return words->eof();
  }
  bool ReadFact(std::istringstream* words) {
    uint64_t tag = 0;
    uint32_t operand = 0;
    int fact = 0;
    if (!(*words >> std::hex >> tag >> std::dec >> operand >> fact)) return false;
    for (const uint32_t blocks : blocks_of_[tag]) {
      const LaunchForm form{tag, blocks};
      for (uint32_t look = 0; fact == 1 && look < WriteFacts::kSamplesForNo; ++look)
        stream.facts.Record(form, operand, /*changed=*/false);
      if (fact == 2) stream.facts.Record(form, operand, /*changed=*/true);
    }
    return true;
  }

  std::unordered_set<TraceBlock> out_;                          // handed out
  std::unordered_map<uint64_t, std::set<uint32_t>> blocks_of_;  // how many blocks launches of a tag name
  Bytes out_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Stream> ParseStream(const std::string& text) {
  Reader reader;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!reader.Read(line)) return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", line));
  }
  if (reader.stream.marks.size() < 4) return absl::InvalidArgumentError("fewer than four marks");
  return std::move(reader.stream);
}

Workload MeasuredWorkload(const Stream& stream, Nanos launch) {
  KernelTimes times;
  times.Add({/*own=*/1}, launch);
  const auto launches = static_cast<uint32_t>(stream.MeasuredTo() - stream.MeasuredFrom());
  return MakeRecordedWorkload(stream.trace, stream.MeasuredFrom(), launches, stream.sizes, &times,
                              &stream.facts)
      .workload;
}

}  // namespace spillway::policy
