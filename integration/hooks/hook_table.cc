// The table of hooks has one line for each base name of driver_symbols.def, for all its ABIs and stream
// forms. A HOOK or MUST row without a line here does not compile. A family works on any ABI whose arguments
// its reader takes; an ABI that it cannot take does not compile either.

#include "integration/hooks/hook_table.h"

#include "integration/hooks/copy_access_sets.h"
#include "integration/hooks/escaped_families.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_access_sets.h"
#include "integration/hooks/lifetime_families.h"
#include "integration/hooks/memory_families.h"

namespace spillway::integration {

using allocator::PinReason;

#define SPILLWAY_HOOK(base, ...)                     \
  template <>                                        \
  struct HookOf<FixedString<sizeof(#base)>(#base)> { \
    using Family = __VA_ARGS__;                      \
  };

// Launches. The launch of a graph names what the graph's nodes name (GraphBlocks).
SPILLWAY_HOOK(cuLaunchKernel, Gated<KernelLaunch>)
SPILLWAY_HOOK(cuLaunchKernelEx, Gated<KernelLaunch>)
SPILLWAY_HOOK(cuLaunchCooperativeKernel, Gated<KernelLaunch>)
SPILLWAY_HOOK(cuLaunchCooperativeKernelMultiDevice, Pinned<PinReason::kUnknownCall, KernelLaunch>)
SPILLWAY_HOOK(cuGraphLaunch, GraphLaunched)
SPILLWAY_HOOK(cuGraphUpload, RepeatedWhenFull)

// Launches of the first interface: parameters are set one by one, in calls that are not followed.
SPILLWAY_HOOK(cuLaunch, NotFollowed)
SPILLWAY_HOOK(cuLaunchGrid, NotFollowed)
SPILLWAY_HOOK(cuLaunchGridAsync, NotFollowed)
SPILLWAY_HOOK(cuParamSetSize, NotFollowed)
SPILLWAY_HOOK(cuParamSeti, NotFollowed)
SPILLWAY_HOOK(cuParamSetf, NotFollowed)
SPILLWAY_HOOK(cuParamSetv, NotFollowed)
SPILLWAY_HOOK(cuParamSetTexRef, NotFollowed)

// Copies.
SPILLWAY_HOOK(cuMemcpy, Gated<UnifiedCopy>)
SPILLWAY_HOOK(cuMemcpyAsync, Gated<UnifiedCopy>)
SPILLWAY_HOOK(cuMemcpyWithAttributesAsync, GatedEarly<AttributedCopy>)
SPILLWAY_HOOK(cuMemcpyHtoD, Gated<UnifiedCopy>)
SPILLWAY_HOOK(cuMemcpyHtoDAsync, Gated<UnifiedCopy>)
SPILLWAY_HOOK(cuMemcpyDtoH, Gated<LinearCopy>)
SPILLWAY_HOOK(cuMemcpyDtoHAsync, Gated<LinearCopy>)
SPILLWAY_HOOK(cuMemcpyDtoD, Gated<DeviceCopy>)
SPILLWAY_HOOK(cuMemcpyDtoDAsync, Gated<DeviceCopy>)
SPILLWAY_HOOK(cuMemcpyPeer, Gated<PeerCopy>)
SPILLWAY_HOOK(cuMemcpyPeerAsync, Gated<PeerCopy>)
SPILLWAY_HOOK(cuMemcpyAtoA, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemcpyAtoH, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemcpyAtoHAsync, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemcpyHtoA, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemcpyHtoAAsync, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemcpyAtoD, Gated<ArrayToLinearCopy>)
SPILLWAY_HOOK(cuMemcpyDtoA, Gated<LinearToArrayCopy>)
SPILLWAY_HOOK(cuMemcpy2D, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy2DAsync, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy2DUnaligned, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy3D, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy3DAsync, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy3DPeer, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpy3DPeerAsync, Gated<PitchedCopy>)
SPILLWAY_HOOK(cuMemcpyBatchAsync, GatedEarly<BatchCopy>)
SPILLWAY_HOOK(cuMemcpy3DBatchAsync, GatedEarly<PitchedBatchCopy>)
SPILLWAY_HOOK(cuMemcpy3DWithAttributesAsync, GatedEarly<PitchedBatchCopy>)
SPILLWAY_HOOK(cuFabricCpyBatchAsync, Gated<FabricCopyBatch>)

// Memsets.
SPILLWAY_HOOK(cuMemsetD8, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD16, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD32, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD8Async, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD16Async, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD32Async, Gated<Memset>)
SPILLWAY_HOOK(cuMemsetD2D8, Gated<PitchedMemset>)
SPILLWAY_HOOK(cuMemsetD2D16, Gated<PitchedMemset>)
SPILLWAY_HOOK(cuMemsetD2D32, Gated<PitchedMemset>)
SPILLWAY_HOOK(cuMemsetD2D8Async, Gated<PitchedMemset>)
SPILLWAY_HOOK(cuMemsetD2D16Async, Gated<PitchedMemset>)
SPILLWAY_HOOK(cuMemsetD2D32Async, Gated<PitchedMemset>)

// Prefetch, discard, decompression.
SPILLWAY_HOOK(cuMemPrefetchAsync, Gated<OneRange>)
SPILLWAY_HOOK(cuMemPrefetchBatchAsync, Gated<RangeBatch>)
SPILLWAY_HOOK(cuMemDiscardBatchAsync, Gated<RangeBatch>)
SPILLWAY_HOOK(cuMemDiscardAndPrefetchBatchAsync, Gated<RangeBatch>)
SPILLWAY_HOOK(cuMemBatchDecompressAsync, Gated<DecompressBatch>)

// Words that streams read or write by themselves.
SPILLWAY_HOOK(cuStreamWaitValue32, Gated<WordRead>)
SPILLWAY_HOOK(cuStreamWaitValue64, Gated<WordRead>)
SPILLWAY_HOOK(cuStreamWriteValue32, Gated<WordWritten>)
SPILLWAY_HOOK(cuStreamWriteValue64, Gated<WordWritten>)
SPILLWAY_HOOK(cuStreamBatchMemOp, Gated<WordBatch>)

// Capture.
SPILLWAY_HOOK(cuStreamBeginCapture, CaptureBegin)
SPILLWAY_HOOK(cuStreamBeginCaptureToGraph, CaptureInto</*kAnew=*/false>)
SPILLWAY_HOOK(cuStreamBeginRecaptureToGraph, CaptureInto</*kAnew=*/true>)
SPILLWAY_HOOK(cuStreamBeginCaptureToCig, CaptureToList)
SPILLWAY_HOOK(cuStreamEndCapture, CaptureEnd)
SPILLWAY_HOOK(cuStreamEndCaptureToCig, CaptureEnd)

// Graphs, whose launches name what their nodes name.
SPILLWAY_HOOK(cuGraphAddNode, NodeParameters)
SPILLWAY_HOOK(cuGraphAddKernelNode, NodeParameters)
SPILLWAY_HOOK(cuGraphAddMemcpyNode, NodeParameters)
SPILLWAY_HOOK(cuGraphAddMemsetNode, NodeParameters)
SPILLWAY_HOOK(cuGraphAddBatchMemOpNode, NodeParameters)
SPILLWAY_HOOK(cuGraphAddMemFreeNode, NodeParameters)
SPILLWAY_HOOK(cuGraphKernelNodeGetParams, NodeKernelFound)
SPILLWAY_HOOK(cuGraphNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphKernelNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphMemcpyNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphMemsetNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphBatchMemOpNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphExecNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphExecKernelNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphExecMemcpyNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphExecMemsetNodeSetParams, NodeParameters)
SPILLWAY_HOOK(cuGraphExecBatchMemOpNodeSetParams, NodeParameters)
// These combine nodes that were seen when they were made.
SPILLWAY_HOOK(cuGraphAddChildGraphNode, ChildNode)
SPILLWAY_HOOK(cuGraphAddMemAllocNode, RepeatedWhenFull)
SPILLWAY_HOOK(cuGraphExecChildGraphNodeSetParams, ChildParameters)
SPILLWAY_HOOK(cuGraphCreate, GraphMade)
SPILLWAY_HOOK(cuGraphClone, GraphCloned)
SPILLWAY_HOOK(cuGraphInstantiate, GraphInstantiated)
SPILLWAY_HOOK(cuGraphInstantiateWithFlags, GraphInstantiated)
SPILLWAY_HOOK(cuGraphInstantiateWithParams, GraphInstantiated)
SPILLWAY_HOOK(cuGraphExecUpdate, ExecUpdated)
SPILLWAY_HOOK(cuGraphDestroy, GraphEnd)
SPILLWAY_HOOK(cuGraphExecDestroy, ExecEnd)
SPILLWAY_HOOK(cuGraphDestroyNode, NodeEnd)
SPILLWAY_HOOK(cuGraphChildGraphNodeGetGraph, InnerGraphFound)
SPILLWAY_HOOK(cuGraphNodeGetParams, InnerGraphFound)

// Addresses that leave the process or the device.
using Exported = Pinned<PinReason::kExport, AnyArgument>;
SPILLWAY_HOOK(cuIpcGetMemHandle, Exported)
SPILLWAY_HOOK(cuMemRetainAllocationHandle, RetainedHandle)
SPILLWAY_HOOK(cuMemGetHandleForAddressRange, Exported)
SPILLWAY_HOOK(cuMulticastBindAddr, Pinned<PinReason::kPeer, AnyArgument>)
SPILLWAY_HOOK(cuLogicalEndpointBindAddr, Pinned<PinReason::kPeer, AnyArgument>)
SPILLWAY_HOOK(cuMemPoolExportPointer, Exported)
SPILLWAY_HOOK(cuMulticastBindMem, NotWrapped)  // takes a handle, and ours are given to nobody
SPILLWAY_HOOK(cuLogicalEndpointBindMem, NotWrapped)
SPILLWAY_HOOK(cuMemExportToShareableHandle, NotWrapped)
SPILLWAY_HOOK(cuMemImportFromShareableHandle, NotWrapped)  // memory that its creator counts
SPILLWAY_HOOK(cuMemPoolImportPointer, NotWrapped)
SPILLWAY_HOOK(cuIpcOpenMemHandle, NotWrapped)
SPILLWAY_HOOK(cuIpcCloseMemHandle, NotWrapped)

// Textures, surfaces, tensor maps.
using Textured = Pinned<PinReason::kTexture, AnyArgument>;
SPILLWAY_HOOK(cuTexObjectCreate, ObjectMade<ObjectPins::Kind::kTexture>)
SPILLWAY_HOOK(cuSurfObjectCreate, ObjectMade<ObjectPins::Kind::kSurface>)
SPILLWAY_HOOK(cuTexRefSetAddress, Textured)
SPILLWAY_HOOK(cuTexRefSetAddress2D, Textured)
SPILLWAY_HOOK(cuTexObjectDestroy, ObjectEnd<ObjectPins::Kind::kTexture>)
SPILLWAY_HOOK(cuTexObjectGetResourceDesc, NotWrapped)  // returns the descriptions as they were given
SPILLWAY_HOOK(cuSurfObjectDestroy, ObjectEnd<ObjectPins::Kind::kSurface>)
SPILLWAY_HOOK(cuSurfObjectGetResourceDesc, NotWrapped)
SPILLWAY_HOOK(cuTexRefGetAddress, NotWrapped)
SPILLWAY_HOOK(cuTensorMapEncodeTiled, TensorMapEncoded)
SPILLWAY_HOOK(cuTensorMapEncodeIm2col, TensorMapEncoded)
SPILLWAY_HOOK(cuTensorMapEncodeIm2colWide, TensorMapEncoded)
SPILLWAY_HOOK(cuTensorMapReplaceAddress, TensorMapMoved)
SPILLWAY_HOOK(cuTensorMapSetAllocationClass, TensorMapReclassed)

// Questions and advice about an address.
using Advised = Pinned<PinReason::kUnknownCall, AnyArgument>;
SPILLWAY_HOOK(cuPointerGetAttribute, PointerAttribute)
SPILLWAY_HOOK(cuPointerGetAttributes, PointerAttributes)
SPILLWAY_HOOK(cuPointerSetAttribute, Advised)
SPILLWAY_HOOK(cuMemGetAddressRange, AddressRange)
SPILLWAY_HOOK(cuMemGetAccess, AccessQuery)
SPILLWAY_HOOK(cuMemRangeGetAttribute, NotWrapped)  // of managed memory only
SPILLWAY_HOOK(cuMemRangeGetAttributes, NotWrapped)
SPILLWAY_HOOK(cuMemGetLocationInfo, NotWrapped)
SPILLWAY_HOOK(cuMemAdvise, Advised)
SPILLWAY_HOOK(cuStreamAttachMemAsync, Advised)

// External memory. The driver moves managed memory by itself; pools count by what is taken from them.
SPILLWAY_HOOK(cuMemAlloc, CountedAlloc)
SPILLWAY_HOOK(cuMemAllocPitch, CountedPitchedAlloc)
SPILLWAY_HOOK(cuMemAllocManaged, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemAllocAsync, CountedAlloc)
SPILLWAY_HOOK(cuMemAllocFromPoolAsync, CountedAlloc)
SPILLWAY_HOOK(cuMemFree, CountedFree)
SPILLWAY_HOOK(cuMemFreeAsync, CountedFree)
SPILLWAY_HOOK(cuArrayCreate, CountedArray)
SPILLWAY_HOOK(cuArray3DCreate, CountedArray)
SPILLWAY_HOOK(cuArrayDestroy, CountedArrayFree<ExternalMemory::Kind::kArray>)
SPILLWAY_HOOK(cuMipmappedArrayCreate, CountedArray)
SPILLWAY_HOOK(cuMipmappedArrayDestroy, CountedArrayFree<ExternalMemory::Kind::kMipmappedArray>)
SPILLWAY_HOOK(cuMemPoolCreate, RepeatedWhenFull)
SPILLWAY_HOOK(cuMemPoolDestroy, NotWrapped)
SPILLWAY_HOOK(cuMemPoolTrimTo, NotWrapped)
SPILLWAY_HOOK(cuMemPoolSetAttribute, NotWrapped)
SPILLWAY_HOOK(cuMemCreate, CountedCreate)
SPILLWAY_HOOK(cuMemRelease, CountedRelease)
SPILLWAY_HOOK(cuMemAddressReserve, NotWrapped)
SPILLWAY_HOOK(cuMemAddressFree, RefusedOnOurs)
SPILLWAY_HOOK(cuMemMap, CountedMap)
SPILLWAY_HOOK(cuMemUnmap, CountedUnmap)
SPILLWAY_HOOK(cuMemSetAccess, Pinned<PinReason::kPeer, AnyArgument>)
SPILLWAY_HOOK(cuMemGetInfo, MemoryInfo)

// Modules and functions.
SPILLWAY_HOOK(cuModuleUnload, ModuleEnd)
SPILLWAY_HOOK(cuLibraryUnload, ModuleEnd)
SPILLWAY_HOOK(cuModuleLoad, FileLoaded)
SPILLWAY_HOOK(cuModuleLoadData, ImageLoaded)
SPILLWAY_HOOK(cuModuleLoadDataEx, ImageLoaded)
SPILLWAY_HOOK(cuModuleLoadFatBinary, ImageLoaded)
SPILLWAY_HOOK(cuLibraryLoadData, ImageLoaded)
SPILLWAY_HOOK(cuLibraryLoadFromFile, FileLoaded)
SPILLWAY_HOOK(cuModuleGetFunction, HandleFound)
SPILLWAY_HOOK(cuModuleEnumerateFunctions, HandlesFound)
SPILLWAY_HOOK(cuModuleGetGlobal, GlobalFound)
SPILLWAY_HOOK(cuModuleGetTexRef, NotWrapped)
SPILLWAY_HOOK(cuModuleGetSurfRef, NotWrapped)
SPILLWAY_HOOK(cuLibraryGetKernel, HandleFound)
SPILLWAY_HOOK(cuLibraryEnumerateKernels, HandlesFound)
SPILLWAY_HOOK(cuLibraryGetModule, HandleFound)
SPILLWAY_HOOK(cuLibraryGetGlobal, GlobalFound)
SPILLWAY_HOOK(cuLibraryGetManaged, RepeatedWhenFull)
SPILLWAY_HOOK(cuLibraryGetUnifiedFunction, RepeatedWhenFull)
SPILLWAY_HOOK(cuKernelGetFunction, HandleFound)
SPILLWAY_HOOK(cuFuncLoad, RepeatedWhenFull)

// Streams and contexts.
SPILLWAY_HOOK(cuStreamDestroy, StreamEnd)
SPILLWAY_HOOK(cuStreamCreate, RepeatedWhenFull)
SPILLWAY_HOOK(cuStreamCreateWithPriority, RepeatedWhenFull)
SPILLWAY_HOOK(cuGreenCtxStreamCreate, RepeatedWhenFull)
SPILLWAY_HOOK(cuCtxCreate, ContextMade)
SPILLWAY_HOOK(cuCtxFromGreenCtx, GreenContextMade)
SPILLWAY_HOOK(cuCtxDestroy, ContextEnd)
SPILLWAY_HOOK(cuCtxDetach, ContextEnd)
SPILLWAY_HOOK(cuDevicePrimaryCtxRelease, ContextEnd)
SPILLWAY_HOOK(cuDevicePrimaryCtxReset, DeviceReset)
SPILLWAY_HOOK(cuGreenCtxDestroy, ContextEnd)

// Private functions of the driver.
SPILLWAY_HOOK(cuGetExportTable, ExportTable)

// The preload wraps these itself.
SPILLWAY_HOOK(cuInit, NotWrapped)
SPILLWAY_HOOK(cuGetProcAddress, NotWrapped)

#undef SPILLWAY_HOOK

namespace {

// Installs one row's wrapper.
struct Installer {
  const std::function<int(const char*, void*)>& install;
  const HookState& state;
  HookReport* report;

  template <Row R>
  void operator()() {
    if constexpr (RowTraits<R>::kUse != SymbolUse::USED) {
      if constexpr (Wrapper<R>::kInstalled) {
        if (state.real.Get<R>() == nullptr) return;  // this driver lacks the function
        if (install(RowTraits<R>::kInfo.symbol, reinterpret_cast<void*>(&Wrapper<R>::Call)) == 0) {
          ++report->installed;
        } else if (RowTraits<R>::kUse == SymbolUse::MUST) {
          report->missing.emplace_back(RowTraits<R>::kInfo.symbol);
        }
      } else {
        static_assert(RowTraits<R>::kUse != SymbolUse::MUST, "a MUST row needs a family that wraps");
      }
    }
  }
};

}  // namespace

HookReport InstallHooks(const std::function<void*(const char*)>& real,
                        const std::function<int(const char*, void*)>& install) {
  auto* const state = new HookState;  // never freed: a wrapper may run until the process is gone
  ForEachRow([&]<Row R>() { state->real.Set(R, real(RowTraits<R>::kInfo.symbol)); });
  SetHookState(state);

  HookReport report;
  ForEachRow(Installer{install, *state, &report});
  return report;
}

HookReport InstallHooks(const spillway_shim* shim) { return InstallHooks(shim->real, shim->install); }

}  // namespace spillway::integration
