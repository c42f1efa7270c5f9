// Streams, events and host functions on streams: the runtime's handles are the driver's, and so are their flags.
#include <new>

#include "integration/simcuda/runtime/context.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;

namespace {

// cudaStreamAddCallback's callback takes runtime types; the driver calls this with its own.
struct StreamCallback {
  cudaStreamCallback_t function;
  void* user_data;
};

void CallBack(CUstream stream, CUresult status, void* data) {
  auto* callback = static_cast<StreamCallback*>(data);
  callback->function(stream, simcuda::ToRuntimeError(status), callback->user_data);
  delete callback;
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (stream == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) { return driver.StreamCreate(stream, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext(
      [&](const DriverTable& driver) { return driver.StreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamDestroy(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamQuery(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamSynchronize(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamGetFlags(stream, flags); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  if (function == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext(
      [&](const DriverTable& driver) { return driver.LaunchHostFunc(stream, function, user_data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* user_data,
                                  unsigned int flags) {
  if (function == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    auto* callback = new (std::nothrow) StreamCallback{function, user_data};
    if (callback == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = driver.StreamAddCallback(stream, CallBack, callback, flags);
    if (result != CUDA_SUCCESS) delete callback;
    return result;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (event == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) { return driver.EventCreate(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return WithContext([&](const DriverTable& driver) { return driver.EventDestroy(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return WithContext([&](const DriverTable& driver) { return driver.EventQuery(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) { return driver.EventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return WithContext(
      [&](const DriverTable& driver) { return driver.EventRecordWithFlags(event, stream, flags); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return WithContext([&](const DriverTable& driver) { return driver.EventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return WithContext(
      [&](const DriverTable& driver) { return driver.EventElapsedTime(milliseconds, start, end); });
}
