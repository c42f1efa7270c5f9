#include "policy/model/workload_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

constexpr absl::string_view kMagic = "SPILLTRC";
constexpr uint8_t kVersion = 2;
constexpr size_t kChecksumBytes = 8;

// Returns FNV-1a, which is enough to recognize a damaged file, and no more.
uint64_t ChecksumOf(absl::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return sum;
}

// Appends seven bits a byte, lowest first; the top bit is set if more follow.
void AppendNumber(uint64_t number, std::string* bytes) {
  for (; number >= 0x80; number >>= 7) bytes->push_back(static_cast<char>(number | 0x80));
  bytes->push_back(static_cast<char>(number));
}

// Appends ascending ids as the differences between them.
void AppendIds(const std::vector<uint32_t>& ids, std::string* bytes) {
  AppendNumber(ids.size(), bytes);
  uint32_t last = 0;
  for (uint32_t id : ids) {
    AppendNumber(id - last, bytes);
    last = id;
  }
}

class Reader {
 public:
  Reader(absl::string_view bytes, size_t offset, size_t end) : bytes_(bytes), offset_(offset), end_(end) {}

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  size_t offset() const { return offset_; }

  uint64_t Number(absl::string_view what) {
    const size_t begin = offset_;
    uint64_t number = 0;
    for (int shift = 0; ok(); shift += 7) {
      if (offset_ >= end_) return Fail(begin, absl::StrCat("the file ends within ", what));
      const uint8_t byte = static_cast<uint8_t>(bytes_[offset_++]);
      if (shift == 63 && byte > 1) return Fail(begin, absl::StrCat("a number out of range for ", what));
      number |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
    return 0;
  }
  // Reads a number of things of at least one byte each, so that a damaged one cannot ask for endless memory.
  size_t Count(absl::string_view what) {
    const size_t begin = offset_;
    const uint64_t count = Number(what);
    if (ok() && count > end_ - offset_)
      return Fail(begin, absl::StrCat(count, " ", what, " cannot be there"));
    return ok() ? count : 0;
  }
  std::string Text(absl::string_view what) {
    const size_t size = Count(what);
    std::string text(bytes_.substr(offset_, size));
    offset_ += size;
    return text;
  }
  std::vector<uint32_t> Ids(uint64_t limit) {
    std::vector<uint32_t> ids;
    const size_t count = Count("tensors of a kernel");
    uint64_t last = 0;
    for (size_t i = 0; i < count && ok(); ++i) {
      const size_t begin = offset_;
      const uint64_t difference = Number("a tensor's id");
      if (difference > limit - last || (i > 0 && difference == 0) || last + difference >= limit) {
        Fail(begin, "a tensor that does not exist, or out of order");
        break;
      }
      last += difference;
      ids.push_back(static_cast<uint32_t>(last));
    }
    return ids;
  }
  uint64_t Fail(size_t offset, absl::string_view what) {
    if (ok()) status_ = absl::InvalidArgumentError(absl::StrCat("at offset ", offset, ": ", what));
    return 0;
  }

 private:
  const absl::string_view bytes_;
  size_t offset_;
  const size_t end_;
  absl::Status status_;
};

absl::Status CheckFrame(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, kMagic))
    return absl::InvalidArgumentError("at offset 0: no Spillway trace (the magic is missing)");
  if (bytes.size() < kMagic.size() + 1 + kChecksumBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("at offset ", bytes.size(), ": the file ends in its head"));
  const uint8_t version = static_cast<uint8_t>(bytes[kMagic.size()]);
  if (version != kVersion)
    return absl::InvalidArgumentError(absl::StrCat("at offset ", kMagic.size(), ": version ", version,
                                                   " of the trace's form; this program reads ", kVersion));
  return absl::OkStatus();
}

uint64_t StoredChecksum(absl::string_view bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kChecksumBytes; ++i)
    sum |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[bytes.size() - kChecksumBytes + i])) << (8 * i);
  return sum;
}

void ReadTensors(Reader* reader, Workload* workload) {
  const size_t tensors = reader->Count("tensors");
  for (size_t t = 0; t < tensors && reader->ok(); ++t) {
    const size_t begin = reader->offset();
    const uint64_t number = reader->Number("a tensor's size");
    if (number >> 2 == 0) reader->Fail(begin, "a tensor without bytes");
    WorkloadTensor tensor{number >> 2, (number & 1) != 0};
    if ((number & 2) != 0) {
      const uint64_t first = reader->Number("the begin of a tensor's life");
      const uint64_t last = reader->Number("the end of a tensor's life");
      if (std::max(first, last) >> 32 != 0) reader->Fail(begin, "a tensor's life out of range");
      tensor.life = {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
    }
    workload->tensors.push_back(tensor);
  }
}

void ReadKernels(Reader* reader, Workload* workload) {
  const size_t kernels = reader->Count("kernels");
  for (size_t k = 0; k < kernels && reader->ok(); ++k) {
    WorkloadKernel kernel;
    kernel.name = reader->Text("a kernel's name");
    const size_t begin = reader->offset();
    const uint64_t duration = reader->Number("a duration");
    if (duration >> 62 != 0) reader->Fail(begin, "a duration out of range");
    kernel.duration = static_cast<Nanos>(duration);
    kernel.workspace_bytes = reader->Number("a workspace");
    kernel.inputs = reader->Ids(workload->tensors.size());
    kernel.outputs = reader->Ids(workload->tensors.size());
    workload->kernels.push_back(std::move(kernel));
  }
}

}  // namespace

std::string EncodeWorkload(const Workload& workload) {
  std::string bytes(kMagic);
  bytes.push_back(static_cast<char>(kVersion));
  AppendNumber(workload.tensors.size(), &bytes);
  for (const WorkloadTensor& tensor : workload.tensors) {
    AppendNumber(tensor.bytes << 2 | (tensor.life ? 2 : 0) | (tensor.persistent ? 1 : 0), &bytes);
    if (!tensor.life) continue;
    AppendNumber(tensor.life->first, &bytes);
    AppendNumber(tensor.life->last, &bytes);
  }
  AppendNumber(workload.kernels.size(), &bytes);
  for (const WorkloadKernel& kernel : workload.kernels) {
    AppendNumber(kernel.name.size(), &bytes);
    bytes += kernel.name;
    AppendNumber(static_cast<uint64_t>(kernel.duration), &bytes);
    AppendNumber(kernel.workspace_bytes, &bytes);
    AppendIds(kernel.inputs, &bytes);
    AppendIds(kernel.outputs, &bytes);
  }
  const uint64_t sum = ChecksumOf(bytes);
  for (size_t i = 0; i < kChecksumBytes; ++i) bytes.push_back(static_cast<char>(sum >> (8 * i)));
  return bytes;
}

absl::StatusOr<Workload> DecodeWorkload(absl::string_view bytes) {
  if (absl::Status status = CheckFrame(bytes); !status.ok()) return status;
  const size_t end = bytes.size() - kChecksumBytes;
  Workload workload;
  Reader reader(bytes, kMagic.size() + 1, end);
  ReadTensors(&reader, &workload);
  if (reader.ok()) ReadKernels(&reader, &workload);
  if (!reader.ok()) return reader.status();
  if (reader.offset() != end)
    return absl::InvalidArgumentError(
        absl::StrCat("at offset ", reader.offset(), ": ", end - reader.offset(), " bytes too many"));
  if (StoredChecksum(bytes) != ChecksumOf(bytes.substr(0, end)))
    return absl::InvalidArgumentError(
        absl::StrCat("at offset ", end, ": the checksum is wrong; the file is damaged"));
  if (absl::Status status = CheckWorkload(workload); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat("at offset ", end, ": ", status.message()));
  return workload;
}

}  // namespace spillway::policy
