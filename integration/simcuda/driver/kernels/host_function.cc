// Driver functions: host functions and callbacks on streams.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/kernels/launch.h"

namespace simcuda {
namespace {

class HostWork : public Work {
 public:
  HostWork(CUhostFn function, void* data) : function_(function), data_(data) {}
  void Run(Stream& stream, bool skip) override {
    if (!skip) function_(data_);
  }
  const char* name() const override { return "host function"; }

 private:
  const CUhostFn function_;
  void* const data_;
};

class HostOperation : public Operation {
 public:
  HostOperation(CUhostFn function, void* data) : parameters_{function, data} {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  CUresult Submit(Stream& stream) const override {
    stream.context()->Enqueue(stream, new HostWork(parameters_.fn, parameters_.userData));
    return CUDA_SUCCESS;
  }
  const CUDA_HOST_NODE_PARAMS& parameters() const { return parameters_; }

 private:
  const CUDA_HOST_NODE_PARAMS parameters_;
};

class CallbackWork : public Work {
 public:
  CallbackWork(CUstreamCallback function, CUstream handle, void* data)
      : function_(function), handle_(handle), data_(data) {}
  void Run(Stream& stream, bool skip) override { function_(handle_, stream.context()->status(), data_); }
  const char* name() const override { return "stream callback"; }

 private:
  const CUstreamCallback function_;
  const CUstream handle_;
  void* const data_;
};

template <Form kForm>
CUresult LaunchHost(CUstream handle, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  bool capturing = false;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = EnterQueueing(*stream, &capturing); result != CUDA_SUCCESS) return result;
  const auto operation = std::make_shared<HostOperation>(function, data);
  return capturing ? RecordOperation(*stream, operation) : operation->Submit(*stream);
}

template <Form kForm>
CUresult AddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // Callbacks cannot become nodes: on a capturing stream they harm the capture, as a synchronization does.
  if (CUresult result = CheckStreamUse(*stream); result != CUDA_SUCCESS) return result;
  stream->context()->Enqueue(*stream, new CallbackWork(function, handle, data));
  return CUDA_SUCCESS;
}

}  // namespace

OperationPtr MakeHostOperation(CUhostFn function, void* data) {
  return std::make_shared<HostOperation>(function, data);
}

bool GetHostOperation(const Operation& operation, CUDA_HOST_NODE_PARAMS* parameters) {
  const auto* host = dynamic_cast<const HostOperation*>(&operation);
  if (host != nullptr) *parameters = host->parameters();
  return host != nullptr;
}

}  // namespace simcuda

SIMCUDA_BOTH_FORMS(cuLaunchHostFunc, _ptsz, simcuda::LaunchHost, (CUstream s, CUhostFn f, void* data),
                   (s, f, data))
SIMCUDA_BOTH_FORMS(cuStreamAddCallback, _ptsz, simcuda::AddCallback,
                   (CUstream s, CUstreamCallback f, void* data, unsigned int flags), (s, f, data, flags))
