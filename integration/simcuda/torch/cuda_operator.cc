// The call of one op: a promised launch when the geometry is known, else a waited one that learns it.
#include "integration/simcuda/torch/cuda_operator.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/cuda/Resize.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "integration/simcuda/torch/arguments.h"
#include "integration/simcuda/torch/number_words.h"
#include "integration/simcuda/torch/operator_call.h"
#include "integration/simcuda/torch/random.h"

namespace simcuda::ops {
namespace {

c10::Storage AllocateDevice(size_t bytes) {
  c10::Allocator* allocator = c10::cuda::CUDACachingAllocator::get();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               static_cast<int64_t>(bytes), allocator->allocate(bytes),
                                               allocator, /*resizable=*/true);
}

void Upload(void* device, const void* host, size_t bytes, c10::cuda::CUDAStream stream) {
  if (bytes == 0) return;
  C10_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.stream()));
}

// Takes the arguments off the stack and puts the returns on it. `device_storages` are those of the arguments, `fresh`
// the new ones; `host_returns` holds values that are no tensors, and may be null when there are none.
void Return(const OpFacts& facts, const Geometry& geometry,
            const std::vector<c10::StorageImpl*>& device_storages, const std::vector<c10::Storage>& fresh,
            const c10::Stack* host_returns, c10::Stack* stack) {
  auto next = geometry.tensors.begin();
  auto build = [&]() -> at::Tensor {
    const TensorGeometry& tensor = *next++;
    if (tensor.kind == StorageKind::kUndefined) return {};
    c10::Storage storage = tensor.kind == StorageKind::kFresh
                               ? fresh[tensor.storage]
                               : c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
                                     device_storages[tensor.storage]));
    return MakeTensor(tensor, std::move(storage), c10::DispatchKey::CUDA);
  };
  c10::Stack returns;
  const size_t first_argument = stack->size() - facts.arguments.size();
  for (size_t i = 0; i < geometry.returns.size(); ++i) {
    const ReturnShape& shape = geometry.returns[i];
    if (shape.kind == ReturnShape::Kind::kArgument) {
      returns.push_back((*stack)[first_argument + shape.argument]);
    } else if (shape.kind == ReturnShape::Kind::kTensor) {
      returns.emplace_back(build());
    } else if (shape.kind == ReturnShape::Kind::kTensorList) {
      c10::List<at::Tensor> list;
      for (size_t n = 0; n < shape.count; ++n) list.push_back(build());
      returns.emplace_back(std::move(list));
    } else {
      returns.push_back((*host_returns)[host_returns->size() - geometry.returns.size() + i]);
    }
  }
  torch::jit::drop(*stack, facts.arguments.size());
  for (c10::IValue& value : returns) stack->push_back(std::move(value));
}

void ApplyChange(const ArgumentChange& change, const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (change.storage_bytes > tensor.storage().nbytes()) {
    at::native::resize_bytes_cuda(impl->unsafe_storage().unsafeGetStorageImpl(), change.storage_bytes);
  }
  impl->set_sizes_and_strides(change.sizes, change.strides, tensor.storage_offset());
}

std::optional<CallSeed> SeedFor(const OpFacts& facts, const c10::Stack& stack, c10::DeviceIndex device) {
  if (!facts.random) return std::nullopt;
  c10::IValue generator;
  if (facts.generator_argument != kNone) {
    generator = stack[stack.size() - facts.arguments.size() + facts.generator_argument];
  }
  return DrawSeed(generator, device);
}

// Finds the changes that an op made to the arguments that it wrote, compared with the CUDA tensors as they
// were.
std::vector<ArgumentChange> FindChanges(const std::vector<at::Tensor>& written,
                                        const std::vector<at::Tensor>& aliases) {
  std::vector<ArgumentChange> changes;
  for (size_t i = 0; i < written.size(); ++i) {
    const at::Tensor& after = aliases[i];
    if (after.sizes() == written[i].sizes() && after.strides() == written[i].strides() &&
        after.storage().nbytes() == written[i].storage().nbytes()) {
      continue;
    }
    changes.push_back(
        {i, at::DimVector(after.sizes()), at::DimVector(after.strides()), after.storage().nbytes()});
  }
  return changes;
}

// Valid as long as `aliases`; its numbers are those of arguments that still live.
LaunchParameters ParametersOf(const AliasSet& aliases) {
  const bool lists = aliases.addresses().size() > kMaxAddressesOfOne;
  return {aliases.addresses(), NumberWords(aliases.tensors(), lists)};
}

void CallPromised(const OpFacts& facts, std::shared_ptr<const Geometry> promise, c10::cuda::CUDAStream stream,
                  c10::Stack* stack) {
  if (!promise->changes.empty()) {
    const std::vector<at::Tensor> written = WrittenTensors(facts, *stack);
    for (const ArgumentChange& change : promise->changes) ApplyChange(change, written[change.written]);
  }
  auto call = std::make_shared<PromisedCall>();
  AliasSet aliases(Growth::kForbidden);
  call->body.facts = &facts;
  call->body.seed = SeedFor(facts, *stack, stream.device_index());
  call->body.stack = BuildHostStack(facts, *stack, &aliases, nullptr);
  std::vector<c10::Storage> fresh;
  for (size_t bytes : promise->fresh_bytes) {
    fresh.push_back(AllocateDevice(bytes));
    void* address = fresh.back().mutable_data();
    call->blocks.push_back({address, bytes});
    if (bytes != 0) aliases.AddAddress(reinterpret_cast<uint64_t>(address));
  }
  call->body.argument_storages = aliases.TakeHostStorages();
  call->promise = promise;
  Launch(facts.name, &facts.functions, ParametersOf(aliases), std::move(call), stream);
  Return(facts, *promise, aliases.device_storages(), fresh, nullptr, stack);
}

// Carries grown or reshaped arguments back to the CUDA tensors, and what was written to host memory with them.
void CarryBack(const std::vector<ArgumentChange>& changes, const std::vector<at::Tensor>& written,
               const std::vector<at::Tensor>& aliases, c10::cuda::CUDAStream stream) {
  for (const ArgumentChange& change : changes) {
    const at::Tensor& tensor = written[change.written];
    const c10::Storage& host = aliases[change.written].storage();
    const void* before = tensor.storage().data();
    ApplyChange(change, tensor);
    if (host.data() != before) {
      Upload(tensor.storage().unsafeGetStorageImpl()->mutable_data(), host.data(), host.nbytes(), stream);
    }
  }
}

// Whether PyTorch's observers of synchronizations are called: for waits that the CUDA kernel has as well.
enum class Watched : uint8_t { kNo, kYes };

void Wait(Watched watched, c10::cuda::CUDAStream stream) {
  if (watched == Watched::kYes) return stream.synchronize();
  C10_CUDA_CHECK(cudaStreamSynchronize(stream.stream()));
}

bool IsCapturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Learns the shapes of results by running the op on zeros in host memory: a capture computes nothing on the device, and
// draws no random numbers.
std::shared_ptr<const Geometry> LearnAside(const OpFacts& facts, const SignatureKey& key,
                                           const c10::Stack& stack) {
  WaitedCall call;
  AliasSet aliases(Growth::kAllowed, Bytes::kZeros);
  std::vector<at::Tensor> written_aliases;
  call.body.facts = &facts;
  if (facts.random) call.body.seed = CallSeed{};
  call.body.stack = BuildHostStack(facts, stack, &aliases, &written_aliases);
  call.body.argument_storages = aliases.host_storages();
  call.Run();
  call.RethrowError();
  std::vector<c10::Storage> fresh;
  auto geometry = std::make_shared<Geometry>(
      DescribeReturns(call.body.stack, facts.returned_argument, call.body.argument_storages, &fresh));
  geometry->changes = FindChanges(WrittenTensors(facts, stack), written_aliases);
  facts.geometries.Insert(key, geometry);
  return geometry;
}

void CallWaited(const OpFacts& facts, const SignatureKey& key, bool learn, c10::cuda::CUDAStream stream,
                c10::Stack* stack) {
  TORCH_CHECK(!IsCapturing(), "simcuda: ", facts.name,
              " must wait for its result here, which a capture forbids: its shape depends on data");
  const auto waited = std::make_shared<WaitedCall>();
  WaitedCall& call = *waited;
  AliasSet aliases(Growth::kAllowed);
  const std::vector<at::Tensor> written = WrittenTensors(facts, *stack);
  std::vector<at::Tensor> written_aliases;
  call.body.facts = &facts;
  call.body.seed = SeedFor(facts, *stack, stream.device_index());
  call.body.stack = BuildHostStack(facts, *stack, &aliases, &written_aliases);
  call.body.argument_storages = aliases.host_storages();
  const LaunchParameters parameters = ParametersOf(aliases);
  Launch(facts.name, &facts.functions, parameters, waited, stream);
  Wait(learn ? Watched::kNo : Watched::kYes, stream);
  call.RethrowError();

  std::vector<c10::Storage> host;
  auto geometry = std::make_shared<Geometry>(
      DescribeReturns(call.body.stack, facts.returned_argument, call.body.argument_storages, &host));
  geometry->changes = FindChanges(written, written_aliases);
  CarryBack(geometry->changes, written, written_aliases, stream);
  std::vector<c10::Storage> fresh;
  for (const c10::Storage& storage : host) {
    fresh.push_back(AllocateDevice(storage.nbytes()));
    Upload(fresh.back().mutable_data(), storage.data(), storage.nbytes(), stream);
  }
  Wait(Watched::kNo, stream);  // the host copies end with this call
  Return(facts, *geometry, aliases.device_storages(), fresh, &call.body.stack, stack);
  if (call.broken()) {  // the call has returned, as far as its caller can tell; now its kernel ends
    Launch(facts.name, &facts.functions, parameters,
           std::make_shared<FailingCall>(facts.name, *call.broken()), stream);
  }
  if (learn) facts.geometries.Insert(key, std::move(geometry));
}

}  // namespace

void CallAsLaunch(const OpFacts& facts, c10::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(facts.host_form != nullptr, "simcuda: ", facts.name,
                              " cannot run on the stand-in GPU: PyTorch has no CPU kernel for it");
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  static thread_local CallDescription description;
  Describe(facts, *stack, &description);
  const c10::DeviceIndex device = description.device.value_or(c10::cuda::current_device());
  const c10::cuda::CUDAGuard guard(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  const bool waits = facts.always_waits || (facts.waits_for_masks && description.has_mask) ||
                     (facts.device_assert != nullptr && RaisesOnTheHost(facts.handle, *stack));
  std::shared_ptr<const Geometry> promise = waits ? nullptr : facts.geometries.Find(description.key);
  if (promise == nullptr && !waits && IsCapturing()) {
    const SignatureKey key = description.key;  // nested calls reuse the description
    promise = LearnAside(facts, key, *stack);
  }
  if (promise != nullptr) {
    CallPromised(facts, std::move(promise), stream, stack);
  } else {
    const SignatureKey key = description.key;
    CallWaited(facts, key, !waits, stream, stack);
  }
}

}  // namespace simcuda::ops
