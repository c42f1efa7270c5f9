// The rows of driver_symbols.def as types and constants: one Row per symbol, its function type, its name
// without ABI suffixes, and whether it is a per-thread-default-stream form. A RealTable has the address of
// each real function, or null for a function that this driver lacks. It is filled once, when the hooks are
// installed; the wrappers read it on any thread. There are no wrappers here, and nothing fails.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/driver/cuda_driver.h"

// Prototypes that the oldest supported headers (CUDA 12.4) lack, so that every row has a type whatever
// toolkit compiles us: the job's libraries may be of a newer one. A pointer to a struct that the headers lack
// is `void*` here, with the same ABI. The readers of arguments have a layout of their own for such a struct
// (copy_access_sets.h), or treat the call as not understood. An enum that the headers lack is `int`. Each
// group belongs to the toolkit whose version its #if names.
extern "C" {

// Contexts that are made with more than flags. `params`: a CUctxCreateParams, which names no block.
#if CUDA_VERSION < 12050
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, void* params, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned int flags,
                                        int priority);
#endif

// `params`: CUmemDecompressParams, one for each of `count` runs. They name blocks, so the call is not
// understood without their layout.
#if CUDA_VERSION < 12060
CUresult CUDAAPI cuMemBatchDecompressAsync(void* params, size_t count, unsigned int flags,
                                           size_t* error_index, CUstream stream);
CUresult CUDAAPI cuMemBatchDecompressAsync_ptsz(void* params, size_t count, unsigned int flags,
                                                size_t* error_index, CUstream stream);
#endif

// Many copies in one call. `attrs`: CUmemcpyAttributes, for which the readers have a layout of their own.
// `attr_indices`: the first copy that each applies to. `ops`: CUDA_MEMCPY3D_BATCH_OP; the call is not
// understood without its layout. The `mode` of a tensor map sets how wide its columns are, and concerns no
// address.
#if CUDA_VERSION < 12080
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                    void* attrs, size_t* attr_indices, size_t attr_count, size_t* fail_index,
                                    CUstream stream);
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                         void* attrs, size_t* attr_indices, size_t attr_count,
                                         size_t* fail_index, CUstream stream);
CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t count, void* ops, size_t* fail_index, unsigned long long flags,
                                      CUstream stream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(size_t count, void* ops, size_t* fail_index,
                                           unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                             void* global_address, const cuuint64_t* global_dim,
                                             const cuuint64_t* global_strides, int lower_corner,
                                             int upper_corner, cuuint32_t channels_per_pixel,
                                             cuuint32_t pixels_per_column, const cuuint32_t* element_strides,
                                             CUtensorMapInterleave interleave, int mode,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                             CUtensorMapFloatOOBfill oob_fill);
#endif

// The batches without the index of the copy that failed, and ranges that are prefetched or whose content is
// given up. A discarded range is brought back like any other, since the driver knows nothing of evicted
// memory.
#if CUDA_VERSION < 13000
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                       void* attrs, size_t* attr_indices, size_t attr_count, CUstream stream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                            void* attrs, size_t* attr_indices, size_t attr_count,
                                            CUstream stream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t count, void* ops, unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t count, void* ops, unsigned long long flags,
                                              CUstream stream);
CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                         CUmemLocation* locations, size_t* location_indices,
                                         size_t location_count, unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                              CUmemLocation* locations, size_t* location_indices,
                                              size_t location_count, unsigned long long flags,
                                              CUstream stream);
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                        unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                             unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                                   CUmemLocation* locations, size_t* location_indices,
                                                   size_t location_count, unsigned long long flags,
                                                   CUstream stream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* ranges, size_t* sizes, size_t count,
                                                        CUmemLocation* locations, size_t* location_indices,
                                                        size_t location_count, unsigned long long flags,
                                                        CUstream stream);
#endif

// Multicast memory bound on a device that is named; captures into a command list of a graphics API. No graph
// comes of such a capture, so what it names stays pinned (CaptureEnd). `params` is ignored.
#if CUDA_VERSION < 13010
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                        size_t offset, CUdeviceptr address, size_t size,
                                        unsigned long long flags);
CUresult CUDAAPI cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
                                       CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                       unsigned long long flags);
CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream stream, void* params);
CUresult CUDAAPI cuStreamBeginCaptureToCig_ptsz(CUstream stream, void* params);
CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream stream);
CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream stream);
#endif

// One copy with the attributes of a batch. If the headers have the structs (12.8), the prototypes use them,
// and the readers look into them.
#if CUDA_VERSION < 13020
#if CUDA_VERSION < 12080
using spillway_memcpy_attributes = void;
using spillway_memcpy_3d_op = void;
#else
using spillway_memcpy_attributes = CUmemcpyAttributes;
using spillway_memcpy_3d_op = CUDA_MEMCPY3D_BATCH_OP;
#endif
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                             spillway_memcpy_attributes* attributes, CUstream stream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                                  spillway_memcpy_attributes* attributes, CUstream stream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(spillway_memcpy_3d_op* op, unsigned long long flags,
                                               CUstream stream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(spillway_memcpy_3d_op* op, unsigned long long flags,
                                                    CUstream stream);
#endif

#if CUDA_VERSION < 13020
// Gives out the kernel of a node, or the graphs inside it. The struct is older than the call.
CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* params);
#endif

// A graph whose nodes are captured anew, with a question about each of them (`callback`), which is passed on;
// memory bound to an endpoint of a fabric, which is named by a number.
#if CUDA_VERSION < 13030
using spillway_logical_endpoint = unsigned int;
CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                               void* callback, void* user_data);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                                    void* callback, void* user_data);
CUresult CUDAAPI cuLogicalEndpointBindAddr(spillway_logical_endpoint endpoint, CUdevice device,
                                           cuuint64_t offset, void* address, cuuint64_t size,
                                           unsigned long long flags);
CUresult CUDAAPI cuLogicalEndpointBindMem(spillway_logical_endpoint endpoint, CUdevice device,
                                          cuuint64_t offset, CUmemGenericAllocationHandle memory,
                                          cuuint64_t memory_offset, cuuint64_t size,
                                          unsigned long long flags);
#endif

// New forms of two calls on nodes. The query of a range's location is not wrapped (hook_table.cc).
#if CUDA_VERSION < 13040
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params);
CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* params);
CUresult CUDAAPI cuMemGetLocationInfo(CUdeviceptr address, size_t size, size_t summary, size_t sampling,
                                      CUmemLocation* locations);
#endif

// `ops`: copies over a fabric, for which the readers have a layout of their own (FabricCopy). The class of a
// tensor map changes its bytes, by which it is known, and not the address that it leads to.
#if CUDA_VERSION < 13050
CUresult CUDAAPI cuFabricCpyBatchAsync(size_t count, void* ops, unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuFabricCpyBatchAsync_ptsz(size_t count, void* ops, unsigned long long flags,
                                            CUstream stream);
CUresult CUDAAPI cuTensorMapSetAllocationClass(CUtensorMap* map, int allocation_class, int* effective);
#endif

}  // extern "C"

namespace spillway::integration {

// A row, by its symbol. The number is a place in RealTable, and means nothing outside this build.
enum class Row : uint16_t {
#define DRIVER_SYMBOL(symbol, use) symbol,
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL
  kCount,  // no row: the number of rows
};
inline constexpr size_t kRowCount = static_cast<size_t>(Row::kCount);

// The use that driver_symbols.def gives a row, explained there.
enum class SymbolUse : uint8_t { USED, HOOK, MUST };

// A string as a template argument: families of wrappers are chosen by the name of the driver function.
template <size_t N>
struct FixedString {
  char text[N] = {};
  constexpr FixedString() = default;
  constexpr FixedString(const char (&literal)[N]) {  // NOLINT: implicit, so that HookOf<"cuFoo"> reads well
    for (size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return std::string_view(text, N - 1); }
};

// Returns the name that all ABIs of one function share: "cuMemcpyHtoD_v2_ptds" -> "cuMemcpyHtoD".
constexpr std::string_view BaseNameOf(std::string_view symbol) {
  if (symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) symbol.remove_suffix(5);
  const size_t n = symbol.size();
  if (n > 3 && symbol[n - 3] == '_' && symbol[n - 2] == 'v' && symbol[n - 1] >= '0' && symbol[n - 1] <= '9') {
    symbol.remove_suffix(3);
  }
  return symbol;
}

// Returns whether the symbol is a copy or memset whose name lacks Async. The others may wait as well, for
// pageable host memory; the readers of their arguments find that (may_block).
constexpr bool IsSynchronous(std::string_view symbol) {
  const bool transfer = symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset");
  return transfer && symbol.find("Async") == std::string_view::npos;
}

// Returns whether the symbol is a per-thread-default-stream form: the driver's ending is _ptsz for calls that
// take a stream, _ptds for those that take none.
constexpr bool IsPerThreadForm(std::string_view symbol) {
  return symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
}

// Returns the FNV-1a hash, of 64 bits, that makes the names of functions and kinds of calls tags of a trace.
// Two names with one hash would count as one.
constexpr uint64_t HashName(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;  // the algorithm's offset; its prime is below
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// The facts that a wrapper has about its row. These are constants in the library, so a wrapper does not look
// them up.
struct RowInfo {
  const char* symbol;       // as in driver_symbols.def, for reports
  uint64_t tag;             // equal for all forms of one function
  bool per_thread_default;  // a null stream means the calling thread's
  bool synchronous;         // a copy or memset that may return only after the GPU has done it
};

// The facts about a row at compile time: the type of the function, as the headers declare it, and RowInfo.
template <Row R>
struct RowTraits;

#define DRIVER_SYMBOL(symbol_, use_)                                                                       \
  template <>                                                                                              \
  struct RowTraits<Row::symbol_> {                                                                         \
    using Function = decltype(&::symbol_);                                                                 \
    static constexpr SymbolUse kUse = SymbolUse::use_;                                                     \
    static constexpr std::string_view kSymbol = #symbol_;                                                  \
    static constexpr RowInfo kInfo = {#symbol_, HashName(BaseNameOf(#symbol_)), IsPerThreadForm(#symbol_), \
                                      IsSynchronous(#symbol_)};                                            \
  };
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL

// Calls visit.template operator()<Row>() for each row in order.
template <typename Visitor>
void ForEachRow(Visitor&& visit) {
#define DRIVER_SYMBOL(symbol, use) visit.template operator()<Row::symbol>();
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL
}

// Returns the base name of a row as a template argument: all ABIs of a function have one family (HookOf).
template <Row R>
constexpr auto BaseOf() {
  constexpr std::string_view base = BaseNameOf(RowTraits<R>::kSymbol);
  FixedString<base.size() + 1> fixed;
  for (size_t i = 0; i < base.size(); ++i) fixed.text[i] = base[i];
  return fixed;
}

// Returns whether the row is in hook_questions.def. Tests learn from that file what the wrappers call for
// themselves, and make each of these calls fail.
constexpr bool IsQuestion(Row row) {
  switch (row) {
#define HOOK_QUESTION(symbol) case Row::symbol:
#include "integration/hooks/hook_questions.def"
#undef HOOK_QUESTION
    return true;
    default: return false;
  }
}

// The real functions; null for a function that this driver lacks. Constant once the first wrapper is
// installed.
class RealTable {
 public:
  template <Row R>
  // The caller checks for null, except a wrapper: it is installed only over a function that exists.
  typename RowTraits<R>::Function Get() const {
    return reinterpret_cast<typename RowTraits<R>::Function>(entries_[static_cast<size_t>(R)]);
  }
  // Returns a function that the wrappers call beside the call that they wrap. Its error may be about
  // something other than the question, so it is no answer: the caller assumes the case in which no block is
  // missed.
  template <Row R>
  typename RowTraits<R>::Function Ask() const {
    static_assert(IsQuestion(R), "to be listed in hook_questions.def");
    return Get<R>();
  }
  // Sets an entry, for InstallHooks and for tests; nothing else may run meanwhile.
  void Set(Row row, void* address) { entries_[static_cast<size_t>(row)] = address; }

 private:
  std::array<void*, kRowCount> entries_{};  // by Row
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_
