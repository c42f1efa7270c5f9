#include "integration/simcuda/driver/copies/copy.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "integration/simcuda/driver/copies/host_memory.h"
#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/failures.h"
#include "integration/simcuda/driver/core/log.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/machine/hardware_link.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/machine/stats.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

constexpr const char* kDirectionNames[SIMCUDA_DIRECTIONS] = {"htod", "dtoh", "dtod", "htoh"};
constexpr uint64_t kStagedBytes = 64 << 10;  // CUDA copies smaller pageable sources aside and returns at once

bool Overlaps(uint64_t start, uint64_t size, uint64_t other, uint64_t other_size) {
  return start < other + other_size && other < start + size;
}

void MoveBytes(const CopyShape& shape, bool sample = false) {
  if (sample && shape.height == 1 && shape.width > kSampleEvery) {
    for (uint64_t at = 0; at + kSampleBytes <= shape.width; at += kSampleEvery) {
      std::memmove(reinterpret_cast<void*>(shape.destination + at),
                   reinterpret_cast<const void*>(shape.source + at), kSampleBytes);
    }
    return;
  }
  for (uint64_t row = 0; row < shape.height; ++row) {
    std::memmove(reinterpret_cast<void*>(shape.destination + row * shape.destination_pitch),
                 reinterpret_cast<const void*>(shape.source + row * shape.source_pitch), shape.width);
  }
}

// When an operation that the profile lets last from `begin` to `end`, and that took this machine `took`, has
// ended.
int64_t EndHere(int64_t begin, int64_t end, int64_t took) {
  if (took <= end - begin) return end;
  CountOverrun(took - (end - begin));  // this machine is slower than the one of the profile
  return NowNs();
}

class CopyWork : public Work {
 public:
  CopyWork(const CopyShape& shape, int direction, bool pageable)
      : shape_(shape), direction_(direction), pageable_(pageable) {}

  // Copies the source aside, so that the caller may change it at once.
  void Stage() {
    const DeviceRights rights;  // the source may be on the device
    staged_ = std::make_unique<char[]>(shape_.bytes());
    CopyShape aside = shape_;
    aside.destination = reinterpret_cast<uint64_t>(staged_.get());
    aside.destination_pitch = shape_.width;
    MoveBytes(aside);
    shape_.source = aside.destination;
    shape_.source_pitch = shape_.width;
  }

  bool Touches(uint64_t start, uint64_t size) const override {
    return Overlaps(start, size, shape_.destination, shape_.destination_extent()) ||
           Overlaps(start, size, shape_.source, shape_.source_extent());
  }
  const char* name() const override { return kDirectionNames[direction_]; }

  void Run(Stream& stream, bool skip) override {
    if (skip) return;
    if (const HardwareProfile* const profile = ActiveProfile()) return RunAsOn(*profile, stream);
    const bool has_engine = direction_ == SIMCUDA_HTOD || direction_ == SIMCUDA_DTOH;
    const Settings& settings = GetSettings();
    const int64_t bandwidth = has_engine ? settings.copy_bytes_per_s[direction_].load() : 0;
    const int64_t latency = has_engine ? settings.copy_latency_ns[direction_].load() : 0;
    int64_t begin = 0, end = 0;
    if (bandwidth > 0 || latency > 0) {
      const double transfer_ns =
          bandwidth > 0 ? static_cast<double>(shape_.bytes()) * 1e9 / static_cast<double>(bandwidth) : 0;
      CopyEngine& engine = stream.context()->device().engine(direction_);
      std::unique_lock<std::mutex> lock(engine.mutex);
      begin = std::max(NowNs(), engine.free_at_ns);
      end = engine.free_at_ns = begin + latency + static_cast<int64_t>(transfer_ns);
      lock.unlock();
      SleepUntil(begin);
    } else if (IsLogging()) {
      begin = NowNs();
    }
    if (!RunGuarded(stream, [this] { MoveBytes(shape_); })) return;
    if (end != 0) SleepUntil(end);
    Record(stream, begin, NowNs());
  }

 private:
  // Takes the times of a machine's profile.
  void RunAsOn(const HardwareProfile& profile, Stream& stream) {
    int64_t begin = stream.begin_ns(), end = 0, move_ns = 0;
    bool moved = false;
    const auto move = [&] {
      const int64_t start = NowNs();
      const bool sample = GetSettings().copy_sample.load() != 0;
      moved = RunGuarded(stream, [&] { MoveBytes(shape_, sample); });
      move_ns = NowNs() - start;
    };
    const auto bytes = static_cast<double>(shape_.bytes());
    if (direction_ == SIMCUDA_HTOD || direction_ == SIMCUDA_DTOH) {
      const DirectionCost& direction = profile.directions[direction_];
      const double rate = pageable_ ? std::min(profile.pageable_bytes_per_ns, direction.alone_bytes_per_ns)
                                    : direction.alone_bytes_per_ns;
      end = LinkOf(stream.context()->device().ordinal())
                .Copy(direction_, begin, direction.setup_ns + bytes / rate,
                      direction.both_bytes_per_ns / direction.alone_bytes_per_ns, &begin, move);
    } else {
      move();
      const bool on_device = direction_ == SIMCUDA_DTOD;
      end = begin + static_cast<int64_t>(
                        bytes / (on_device ? profile.device_bytes_per_ns : profile.pageable_bytes_per_ns));
      SleepUntil(end);
    }
    if (!moved) return;
    end = EndHere(begin, end, move_ns);
    stream.set_end_ns(end);
    Record(stream, begin, end);
  }

  void Record(Stream& stream, int64_t begin, int64_t end) {
    Stats& stats = GetStats();
    stats.copies.fetch_add(1, std::memory_order_relaxed);
    stats.copied_bytes[direction_].fetch_add(shape_.bytes(), std::memory_order_relaxed);
    if (!IsLogging()) return;
    AppendLog({"copy", stream.id(), stream.context()->device().ordinal(), begin, end, shape_.bytes(),
               kDirectionNames[direction_], "-"});
  }

  CopyShape shape_;
  const int direction_;
  const bool pageable_;
  std::unique_ptr<char[]> staged_;
};

class FillWork : public Work {
 public:
  explicit FillWork(const FillShape& shape) : shape_(shape) {}
  bool Touches(uint64_t start, uint64_t size) const override {
    return Overlaps(start, size, shape_.destination, shape_.extent());
  }
  const char* name() const override { return "memset"; }

  void Run(Stream& stream, bool skip) override {
    if (skip) return;
    const HardwareProfile* const profile = ActiveProfile();
    const int64_t start = profile != nullptr || IsLogging() ? NowNs() : 0;
    const bool filled = RunGuarded(stream, [this] {
      for (uint64_t row = 0; row < shape_.height; ++row) FillRow(shape_.destination + row * shape_.pitch);
    });
    if (!filled) return;
    const uint64_t bytes = shape_.width * shape_.element_bytes * shape_.height;
    int64_t begin = start;
    if (profile != nullptr) {
      const int64_t took = NowNs() - start;
      begin = stream.begin_ns();
      const int64_t end =
          begin + static_cast<int64_t>(static_cast<double>(bytes) / profile->device_bytes_per_ns);
      SleepUntil(end);
      stream.set_end_ns(EndHere(begin, end, took));
    }
    GetStats().memsets.fetch_add(1, std::memory_order_relaxed);
    if (!IsLogging()) return;
    const int64_t end = profile != nullptr ? stream.end_ns() : NowNs();
    AppendLog({"memset", stream.id(), stream.context()->device().ordinal(), begin, end, bytes, "-", "-"});
  }

 private:
  void FillRow(uint64_t row) {
    if (shape_.element_bytes == 1) {
      std::memset(reinterpret_cast<void*>(row), static_cast<int>(shape_.value), shape_.width);
    } else if (shape_.element_bytes == 2) {
      std::fill_n(reinterpret_cast<uint16_t*>(row), shape_.width, static_cast<uint16_t>(shape_.value));
    } else {
      std::fill_n(reinterpret_cast<uint32_t*>(row), shape_.width, shape_.value);
    }
  }

  const FillShape shape_;
};

}  // namespace

MemorySide MemorySideOf(uint64_t start, uint64_t size, const char* what) {
  AddressSpace& space = GetAddressSpace();
  if (!space.pool().Contains(start))
    return FindHostMemory(start, nullptr) ? MemorySide::kPinned : MemorySide::kPageable;
  const uint64_t missing = space.FirstInaccessible(start, size);
  if (missing == 0) {
    return space.Find(start).mapping.device == nullptr ? MemorySide::kPinned
                                                       : MemorySide::kDevice;  // mapped host memory
  }
  switch (GetSettings().mode_now()) {
    case Mode::kReport:  // the touch itself will be counted and let in,
    case Mode::kFault:   // or will fail the context
      return MemorySide::kDevice;
    case Mode::kOff: return MemorySide::kBad;
    case Mode::kStrict: break;
  }
  using Hex = unsigned long long;
  std::fprintf(stderr,
               "simcuda: a copy or memset was refused: its %s [0x%llx, +%llu) is not mapped at 0x%llx; %s\n",
               what, Hex{start}, Hex{size}, Hex{missing}, AddressText(missing).c_str());
  ++GetStats().misuses;
  return MemorySide::kBad;
}

namespace {

bool IsPlausible(const CopyShape& shape) {
  if (shape.destination == 0 || shape.source == 0) return false;
  return shape.height <= 1 || (shape.destination_pitch >= shape.width && shape.source_pitch >= shape.width);
}

}  // namespace

CUresult CheckCopy(const CopyShape& shape) {
  if (shape.bytes() == 0) return CUDA_SUCCESS;
  const bool good =
      IsPlausible(shape) &&
      MemorySideOf(shape.destination, shape.destination_extent(), "destination") != MemorySide::kBad &&
      MemorySideOf(shape.source, shape.source_extent(), "source") != MemorySide::kBad;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SubmitCopy(Stream& stream, const CopyShape& shape, CopyReturn when, SourceOrder order) {
  if (shape.bytes() == 0) return CUDA_SUCCESS;
  if (!IsPlausible(shape)) return CUDA_ERROR_INVALID_VALUE;
  if (when != CopyReturn::kGraph) {
    bool capturing = false;
    CUresult result = EnterQueueing(stream, &capturing);
    if (result == CUDA_SUCCESS && when == CopyReturn::kSync) result = CheckStreamUse(stream);
    if (result != CUDA_SUCCESS) return result;
    if (capturing) return RecordOperation(stream, std::make_shared<CopyOperation>(shape));
  }
  const MemorySide destination = MemorySideOf(shape.destination, shape.destination_extent(), "destination");
  const MemorySide source = MemorySideOf(shape.source, shape.source_extent(), "source");
  if (destination == MemorySide::kBad || source == MemorySide::kBad) return CUDA_ERROR_INVALID_VALUE;
  if (ShouldFailCopy()) return CUDA_ERROR_UNKNOWN;
  const bool to_device = destination == MemorySide::kDevice;
  const bool from_device = source == MemorySide::kDevice;
  const int direction =
      to_device ? (from_device ? SIMCUDA_DTOD : SIMCUDA_HTOD) : (from_device ? SIMCUDA_DTOH : SIMCUDA_HTOH);
  const bool pageable = destination == MemorySide::kPageable || source == MemorySide::kPageable;
  auto work = std::make_unique<CopyWork>(shape, direction, pageable);
  bool wait = when == CopyReturn::kSync && direction != SIMCUDA_DTOD;
  if (destination == MemorySide::kPageable && when != CopyReturn::kGraph) wait = true;
  if (order == SourceOrder::kAny) {
    work->Stage();
  } else if (source == MemorySide::kPageable && !wait && when != CopyReturn::kGraph) {
    if (shape.bytes() <= kStagedBytes) {
      work->Stage();
    } else {
      wait = true;
    }
  }
  uint64_t number = 0;
  {
    CallTime time(Call::kCopy);
    if (when != CopyReturn::kGraph) time.Spend();
    number = stream.context()->Enqueue(stream, work.release());
  }
  if (wait) stream.WaitFor(number);
  return wait ? stream.context()->status() : CUDA_SUCCESS;
}

CUresult CopyOperation::Submit(Stream& stream) const {
  return SubmitCopy(stream, shape_, CopyReturn::kGraph);
}

namespace {

CUresult CheckFill(const FillShape& shape) {
  if (shape.element_bytes != 1 && shape.element_bytes != 2 && shape.element_bytes != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.destination == 0 || shape.destination % shape.element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool overlap = shape.height > 1 && shape.pitch < shape.width * shape.element_bytes;
  return overlap ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult QueueFill(Stream& stream, const FillShape& shape) {
  const MemorySide side = MemorySideOf(shape.destination, shape.extent(), "destination");
  if (side == MemorySide::kBad || side == MemorySide::kPageable) return CUDA_ERROR_INVALID_VALUE;
  stream.context()->Enqueue(stream, new FillWork(shape));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FillOperation::Submit(Stream& stream) const { return QueueFill(stream, shape_); }

CUresult SubmitFill(Stream& stream, const FillShape& shape) {
  if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
  if (CUresult result = CheckFill(shape); result != CUDA_SUCCESS) return result;
  bool capturing = false;
  if (CUresult result = EnterQueueing(stream, &capturing); result != CUDA_SUCCESS) return result;
  if (capturing) return RecordOperation(stream, std::make_shared<FillOperation>(shape));
  CallTime time(Call::kFill);
  time.Spend();
  return QueueFill(stream, shape);
}

}  // namespace simcuda
