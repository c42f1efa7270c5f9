#include "allocator/driver/device_hash.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::allocator {

absl::StatusOr<std::unique_ptr<DeviceHash>> DeviceHash::Create(const CudaDriver* driver,
                                                               const std::string& image) {
  std::unique_ptr<DeviceHash> hash(new DeviceHash(driver));
  SPILLWAY_RETURN_IF_ERROR(hash->Load(image));
  SPILLWAY_RETURN_IF_ERROR(hash->MakePlaces());
  SPILLWAY_RETURN_IF_ERROR(hash->Check());
  return hash;
}

absl::Status DeviceHash::Load(const std::string& image) {
  CUmodule module = nullptr;
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuModuleLoadData(&module, image.c_str()), "loading the content hash"));
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuModuleGetFunction(&function_, module, content_hash::kKernelName),
                        "finding the content hash"));
  return driver_->ToStatus(driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
                           "creating the hash stream");
}

absl::Status DeviceHash::MakePlaces() {
  constexpr uint64_t kBytes = kPlaces * kPlaceBytes;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return os::StatusFromErrno(errno, "memory for hashes");
  madvise(memory, kBytes, MADV_DONTFORK);  // copy-on-write would move pages that the device writes
  absl::Status status =
      driver_->ToStatus(driver_->cuMemHostRegister_v2(
                            memory, kBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                        "pinning memory for hashes");
  if (status.ok()) {
    status = driver_->ToStatus(driver_->cuMemHostGetDevicePointer_v2(&device_results_, memory, 0),
                               "mapping memory for hashes");
  }
  if (!status.ok()) {
    munmap(memory, kBytes);
    return status;
  }
  results_ = static_cast<std::byte*>(memory);
  os::MutexLock lock(&mu_);
  for (int place = kPlaces; place-- > 0;) free_.push_back(place);
  return absl::OkStatus();
}

// A kernel that computes wrong values would let changed blocks go without a copy. Check tries the kernel on
// half of the memory for results, whose content and hash the host knows, and once more with one bit changed.
absl::Status DeviceHash::Check() {
  constexpr uint64_t kBytes = kPlaces / 2 * kPlaceBytes;
  auto* const words = reinterpret_cast<uint64_t*>(results_ + kBytes);
  for (uint64_t i = 0; i < kBytes / 8; ++i) words[i] = i * 0x9e3779b97f4a7c15u;
  for (int round = 0; round < 2; ++round) {
    SPILLWAY_ASSIGN_OR_RETURN(Request request, Enqueue(stream_, device_results_ + kBytes, kBytes));
    SPILLWAY_RETURN_IF_ERROR(
        driver_->ToStatus(driver_->cuStreamSynchronize(stream_), "trying the content hash"));
    if (!(Take(&request) == HashOf(words, kBytes))) {
      return absl::InternalError("the device's content hash is not the host's");
    }
    words[kBytes / 16] ^= uint64_t{1} << 63;
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceHash::Request> DeviceHash::Enqueue(CUstream stream, CUdeviceptr address,
                                                        uint64_t bytes) {
  Request request;
  {
    os::MutexLock lock(&mu_);
    if (free_.empty()) return absl::UnavailableError("too many hashes are under way");
    request.place = free_.back();
    free_.pop_back();
  }
  request.partials = content_hash::BlocksFor(bytes);
  uint64_t vectors = bytes / content_hash::kVectorBytes;
  CUdeviceptr partials = device_results_ + static_cast<uint64_t>(request.place) * kPlaceBytes;
  void* parameters[] = {&address, &vectors, &partials};
  const CUresult result = driver_->cuLaunchKernel(function_, request.partials, 1, 1, content_hash::kThreads,
                                                  1, 1, 0, stream, parameters, nullptr);
  if (result == CUDA_SUCCESS) return request;
  Drop(&request);
  return driver_->ToStatus(result, "hashing a block");
}

ContentHash DeviceHash::Take(Request* request) {
  ContentHash sum;
  // The device has written these words before the event that the caller has seen complete.
  const auto* const partials = reinterpret_cast<const volatile uint64_t*>(
      results_ + static_cast<uint64_t>(request->place) * kPlaceBytes);
  for (unsigned i = 0; i < request->partials; ++i) {
    sum.low += partials[2 * i];
    sum.high += partials[2 * i + 1];
  }
  Drop(request);
  return sum;
}

void DeviceHash::Drop(Request* request) {
  if (!request->valid()) return;
  os::MutexLock lock(&mu_);
  free_.push_back(request->place);
  *request = Request();
}

// ---- Loading.

void HashLoader::Begin() {
  if (code_ == nullptr) return;
  const absl::Status started = thread_.Start("spillway-hash", [this] { Load(); });
  if (!started.ok()) Fail(started);
}

void HashLoader::Fail(absl::Status why) {
  failure_ = std::move(why);
  failed_.store(true, std::memory_order_release);
}

// Reported once per device: each device has its driver's own reason, and devices are few.
void HashLoader::ReportMissing() {
  if (reported_ || !failed_.load(std::memory_order_acquire)) return;
  reported_ = true;
  os::ReportLine("blocks that have not changed are written again each time they leave the GPU: " +
                 std::string(failure_.message()));
}

void HashLoader::Load() {
  ScopedContext scope(driver_, context_);
  CUdevice device = 0;
  int major = 0;
  int minor = 0;
  driver_->cuDeviceGet(&device, device_);
  driver_->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver_->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  absl::StatusOr<std::string> image = code_->Image(major, minor);
  absl::Status status = image.status();
  if (image.ok()) {
    absl::StatusOr<std::unique_ptr<DeviceHash>> hash = DeviceHash::Create(driver_, *image);
    status = hash.status();
    if (hash.ok()) hash_ = *std::move(hash);
  }
  if (hash_ != nullptr) {
    ready_.store(hash_.get(), std::memory_order_release);
    return;
  }
  Fail(std::move(status));
}

bool HashLoader::Stop(std::chrono::nanoseconds longest) { return thread_.JoinFor(longest); }

void HashLoader::Abandon() { thread_.Abandon(); }

}  // namespace spillway::allocator
