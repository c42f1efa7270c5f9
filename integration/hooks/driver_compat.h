// Prototypes of wrapped driver functions that the oldest supported headers (CUDA 12.4) do not have yet, so
// that every row of driver_symbols.def has a type whatever toolkit compiles us. A pointer to a struct that
// the headers lack is `void*` here: same ABI, and the collectors treat such a call as not understood.
// Declares only.

#ifndef SPILLWAY_INTEGRATION_HOOKS_DRIVER_COMPAT_H_
#define SPILLWAY_INTEGRATION_HOOKS_DRIVER_COMPAT_H_

#include "allocator/driver/cuda_driver.h"

extern "C" {

#if CUDA_VERSION < 12050
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned int flags,
                                        int priority);
#endif

#if CUDA_VERSION < 12060
CUresult CUDAAPI cuMemBatchDecompressAsync(void* params, size_t count, unsigned int flags,
                                           size_t* error_index, CUstream stream);
CUresult CUDAAPI cuMemBatchDecompressAsync_ptsz(void* params, size_t count, unsigned int flags,
                                                size_t* error_index, CUstream stream);
#endif

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

}  // extern "C"

#endif  // SPILLWAY_INTEGRATION_HOOKS_DRIVER_COMPAT_H_
