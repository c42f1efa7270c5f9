#include "policy/offline/workload_csv.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace spillway::policy {
namespace {

constexpr double kNanosPerMicro = 1000.0;
constexpr double kLongestMicros = 1e12;  // eleven days; longer is a damaged number

// The lines of a CSV file, with the columns found by name.
class CsvReader {
 public:
  CsvReader(absl::string_view file, absl::string_view bytes) : file_(file), bytes_(bytes) {}

  absl::Status ReadHeader(const std::vector<absl::string_view>& columns) {
    if (!Next()) return absl::InvalidArgumentError(absl::StrCat(file_, ": empty, no header at offset 0"));
    for (absl::string_view column : columns) {
      const auto found = std::find(fields_.begin(), fields_.end(), column);
      if (found == fields_.end()) return Error(absl::StrCat("no column '", column, "' in the header"));
      places_.push_back(static_cast<size_t>(found - fields_.begin()));
    }
    return absl::OkStatus();
  }

  // Returns false at the end of the file.
  bool Next() {
    while (end_ < bytes_.size()) {
      offset_ = end_;
      const size_t newline = bytes_.find('\n', offset_);
      absl::string_view line = bytes_.substr(offset_, newline - offset_);
      end_ = newline == absl::string_view::npos ? bytes_.size() : newline + 1;
      ++line_;
      absl::ConsumeSuffix(&line, "\r");
      if (line.empty()) continue;
      fields_ = absl::StrSplit(line, ',');
      return true;
    }
    return false;
  }
  // Returns the text of the column at `place` of ReadHeader's list; empty if the line is too short.
  absl::string_view Field(size_t place) const {
    return places_[place] < fields_.size() ? fields_[places_[place]] : absl::string_view();
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", line_, ": ", what, " (offset ", offset_, ")"));
  }

 private:
  const absl::string_view file_;
  const absl::string_view bytes_;
  size_t offset_ = 0;
  size_t end_ = 0;
  size_t line_ = 0;
  std::vector<absl::string_view> fields_;
  std::vector<size_t> places_;
};

absl::Status ReadTensors(absl::string_view bytes, std::vector<WorkloadTensor>* tensors) {
  CsvReader reader("tensors.csv", bytes);
  if (absl::Status status = reader.ReadHeader({"tensor_id", "size_bytes", "persistent"}); !status.ok())
    return status;
  Bytes total = 0;
  while (reader.Next()) {
    uint64_t id = 0;
    WorkloadTensor tensor;
    if (!absl::SimpleAtoi(reader.Field(0), &id) || !absl::SimpleAtoi(reader.Field(1), &tensor.bytes))
      return reader.Error("not a number");
    if (id != tensors->size()) return reader.Error("tensor ids must be 0, 1, 2 ...");
    if (tensor.bytes == 0) return reader.Error("a size must be positive");
    if (tensor.bytes > kMaxWorkloadBytes - total) return reader.Error(kTooManyBytes);
    total += tensor.bytes;
    tensor.persistent = reader.Field(2) == "1";
    tensors->push_back(tensor);
  }
  return absl::OkStatus();
}

// Reads ids into ascending order, without repeats. Returns false if the text is no list of numbers.
bool ParseIds(absl::string_view text, std::vector<uint32_t>* ids) {
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) return false;
    ids->push_back(id);
  }
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  return true;
}

absl::Status ReadKernels(absl::string_view bytes, size_t tensors, std::vector<WorkloadKernel>* kernels) {
  CsvReader reader("kernels.csv", bytes);
  if (absl::Status status =
          reader.ReadHeader({"kernel_id", "name", "duration_us", "inputs", "outputs", "workspace_bytes"});
      !status.ok())
    return status;
  Nanos total = 0;
  while (reader.Next()) {
    uint64_t id = 0;
    double micros = 0;
    WorkloadKernel kernel;
    kernel.name = std::string(reader.Field(1));
    if (!absl::SimpleAtoi(reader.Field(0), &id) || !absl::SimpleAtod(reader.Field(2), &micros) ||
        !ParseIds(reader.Field(3), &kernel.inputs) || !ParseIds(reader.Field(4), &kernel.outputs) ||
        !absl::SimpleAtoi(reader.Field(5), &kernel.workspace_bytes))
      return reader.Error("not a number");
    if (id != kernels->size()) return reader.Error("kernel ids must be 0, 1, 2 ...");
    if (!(micros >= 0 && micros < kLongestMicros)) return reader.Error("a duration is out of range");
    for (const auto* ids : {&kernel.inputs, &kernel.outputs}) {
      if (!ids->empty() && ids->back() >= tensors)
        return reader.Error(absl::StrCat("tensor ", ids->back(), " does not exist"));
    }
    kernel.duration = std::llround(micros * kNanosPerMicro);
    if (kernel.duration > kLongestWorkload - total) return reader.Error(kTooLong);
    total += kernel.duration;
    if (kernel.workspace_bytes > kMaxWorkloadBytes) return reader.Error(kTooManyBytes);
    kernels->push_back(std::move(kernel));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Workload> ParseCsvWorkload(absl::string_view kernels_csv, absl::string_view tensors_csv) {
  Workload workload;
  if (absl::Status status = ReadTensors(tensors_csv, &workload.tensors); !status.ok()) return status;
  if (absl::Status status = ReadKernels(kernels_csv, workload.tensors.size(), &workload.kernels);
      !status.ok())
    return status;
  if (workload.kernels.empty()) return absl::InvalidArgumentError("kernels.csv: no kernels");
  return workload;
}

std::string KernelsCsv(const Workload& workload) {
  std::string text = "kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n";
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    const WorkloadKernel& kernel = workload.kernels[k];
    absl::StrAppend(
        &text, k, ",", absl::StrReplaceAll(kernel.name, {{",", ";"}, {"\n", " "}, {"\r", " "}}), ",",
        absl::StrFormat("%d.%03d", kernel.duration / 1000, static_cast<int>(kernel.duration % 1000)), ",",
        absl::StrJoin(kernel.inputs, " "), ",", absl::StrJoin(kernel.outputs, " "), ",",
        kernel.workspace_bytes, "\n");
  }
  return text;
}

std::string TensorsCsv(const Workload& workload) {
  std::string text = "tensor_id,size_bytes,persistent\n";
  for (size_t t = 0; t < workload.tensors.size(); ++t) {
    const WorkloadTensor& tensor = workload.tensors[t];
    const bool persistent = tensor.persistent || (tensor.life && tensor.life->wraps());
    absl::StrAppend(&text, t, ",", tensor.bytes, ",", persistent ? 1 : 0, "\n");
  }
  return text;
}

}  // namespace spillway::policy
