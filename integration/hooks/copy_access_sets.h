// Access-set builders of copies, memsets, prefetches and words that streams read or write: which ranges their
// arguments name. Templates over the ABIs: a 32-bit address of the first interface is never ours, and falls
// through. Called by the wrappers' families on the thread of the call, before the gate. Arguments that the
// driver will refuse name nothing here.

#ifndef SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_
#define SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_

#include <cstdint>

#include "integration/hooks/access_set_builder.h"

namespace spillway::integration {

// True when `address` is host memory that this process may read. Real driver call, so only for small copies.
bool IsReadableHost(const HookState& state, CUdeviceptr address);
// A copy whose kind the call does not tell: its source is looked through for addresses when small and on the
// host.
void CollectUnknownSource(Touch* touch, CUdeviceptr destination, CUdeviceptr source, uint64_t bytes);
// The same for `rows` runs of `width` bytes, and layers of rows.
struct PitchedPlace {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t layer = 0;  // bytes from one layer to the next
};
void CollectPitchedWrite(Touch* touch, const PitchedPlace& to, const PitchedPlace& from, uint64_t width,
                         uint64_t rows, uint64_t layers);

// (destination, source, bytes[, ...]): both ranges, and nothing of what is written.
struct TwoRanges {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, S source, N bytes, Rest...) {
    touch->Range(AddressOf(destination), bytes);
    touch->Range(AddressOf(source), bytes);
  }
};

// The same, both on devices.
struct DeviceCopy {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, S source, N bytes, Rest...) {
    TwoRanges::Collect(touch, destination, source, bytes);
    touch->WritesFromDevice(AddressOf(destination), AddressOf(source), bytes);
  }
};

// The same, with a side that may be on the host.
struct LinearCopy {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, S source, N bytes, Rest...) {
    TwoRanges::Collect(touch, destination, source, bytes);
    // From or to memory that is not ours: if that is pageable host memory, the call waits for the GPU.
    const auto& map = touch->map();
    if (!map.Contains(AddressOf(destination)) || !map.Contains(AddressOf(source))) touch->may_block = true;
  }
};

// The same with a source in host memory, or in either.
struct HostToDeviceCopy {
  template <typename D, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, const void* source, N bytes, Rest...) {
    LinearCopy::Collect(touch, destination, source, bytes);
    if (touch->map().Contains(AddressOf(source))) {  // no host memory: the driver judges it
      touch->WritesFromDevice(AddressOf(destination), AddressOf(source), bytes);
      return;
    }
    touch->WritesFromHost(AddressOf(destination), source, bytes);
  }
};
struct UnifiedCopy {
  template <typename... Rest>
  static void Collect(Touch* touch, CUdeviceptr destination, CUdeviceptr source, size_t bytes, Rest...) {
    LinearCopy::Collect(touch, destination, source, bytes);
    CollectUnknownSource(touch, destination, source, bytes);
  }
};

// (destination, array, offset, bytes) and (array, offset, source, bytes[, stream]).
struct ArrayToLinearCopy {
  template <typename D, typename O, typename N>
  static void Collect(Touch* touch, D destination, CUarray, O, N bytes) {
    touch->Range(AddressOf(destination), bytes);
    touch->Writes(AddressOf(destination), bytes);
  }
};
struct LinearToArrayCopy {
  template <typename O, typename S, typename N, typename... Rest>
  static void Collect(Touch* touch, CUarray, O, S source, N bytes, Rest...) {
    touch->Range(AddressOf(source), bytes);
  }
};

// (destination, context, source, context, bytes[, stream]).
struct PeerCopy {
  template <typename... Rest>
  static void Collect(Touch* touch, CUdeviceptr destination, CUcontext, CUdeviceptr source, CUcontext,
                      size_t bytes, Rest...) {
    DeviceCopy::Collect(touch, destination, source, bytes);
  }
};

// A descriptor of two dimensions, or of three.
struct PitchedCopy {
  template <typename Copy, typename... Rest>
  static void Collect(Touch* touch, const Copy* copy, Rest...) {
    if (copy == nullptr) return;
    Written(touch, *copy);
    if constexpr (requires { copy->Depth; }) {
      Side(touch, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcXInBytes,
           copy->srcY + uint64_t{copy->srcZ} * copy->srcHeight, copy->srcPitch, copy->srcHeight, *copy);
      Side(touch, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstXInBytes,
           copy->dstY + uint64_t{copy->dstZ} * copy->dstHeight, copy->dstPitch, copy->dstHeight, *copy);
    } else {
      Side(touch, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcXInBytes, copy->srcY,
           copy->srcPitch, 0, *copy);
      Side(touch, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstXInBytes, copy->dstY,
           copy->dstPitch, 0, *copy);
    }
  }

 private:
  template <typename Copy>
  static void Written(Touch* touch, const Copy& copy) {
    if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_HOST) return;
    if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) return;
    const auto pitch = [&](uint64_t given) { return given != 0 ? given : uint64_t{copy.WidthInBytes}; };
    const uint64_t from_base =
        copy.srcMemoryType == CU_MEMORYTYPE_HOST ? AddressOf(copy.srcHost) : uint64_t{copy.srcDevice};
    PitchedPlace to{copy.dstDevice + copy.dstY * pitch(copy.dstPitch) + copy.dstXInBytes,
                    pitch(copy.dstPitch), 0};
    PitchedPlace from{from_base + copy.srcY * pitch(copy.srcPitch) + copy.srcXInBytes, pitch(copy.srcPitch),
                      0};
    uint64_t layers = 1;
    if constexpr (requires { copy.Depth; }) {
      layers = copy.Depth;
      to.layer = to.pitch * (copy.dstHeight != 0 ? copy.dstHeight : copy.Height);
      from.layer = from.pitch * (copy.srcHeight != 0 ? copy.srcHeight : copy.Height);
      to.address += copy.dstZ * to.layer;
      from.address += copy.srcZ * from.layer;
    }
    CollectPitchedWrite(touch, to, from, copy.WidthInBytes, copy.Height, layers);
  }

  template <typename Copy>
  static void Side(Touch* touch, CUmemorytype type, uint64_t device, const void* host, uint64_t x,
                   uint64_t row, uint64_t pitch, uint64_t layer_rows, const Copy& copy) {
    if (type == CU_MEMORYTYPE_ARRAY) return;
    if (type != CU_MEMORYTYPE_DEVICE) touch->may_block = true;  // may be pageable host memory
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? AddressOf(host) : device;
    if (pitch == 0) pitch = copy.WidthInBytes;
    uint64_t rows = copy.Height;
    if constexpr (requires { copy.Depth; }) {
      if (rows == 0 || copy.Depth == 0) return;
      rows += (copy.Depth - 1) * (layer_rows != 0 ? layer_rows : copy.Height);
    }
    touch->PitchedRange(base + row * pitch + x, pitch, copy.WidthInBytes, rows);
  }
};

// (destinations, sources, sizes, count, ...).
struct BatchCopy {
  template <typename... Rest>
  static void Collect(Touch* touch, const CUdeviceptr* destinations, const CUdeviceptr* sources,
                      const size_t* sizes, size_t count, Rest...) {
    if (destinations == nullptr || sources == nullptr || sizes == nullptr) return;
    for (size_t i = 0; i < count; ++i) UnifiedCopy::Collect(touch, destinations[i], sources[i], sizes[i]);
  }
};

// Operations of three dimensions: a batch (count, operations, ...), or one (operation, flags, stream).
struct PitchedBatchCopy {
  template <typename Op, typename... Rest>
  static void Collect(Touch* touch, size_t count, const Op* ops, Rest...) {
    if constexpr (std::is_void_v<Op>) {
      touch->NotUnderstood("cuMemcpy3DBatchAsync (built against a toolkit that lacks it)");
    } else {
      for (size_t i = 0; ops != nullptr && i < count; ++i) {
        Operand(touch, ops[i].src);
        Operand(touch, ops[i].dst);
        Written(touch, ops[i]);
      }
    }
  }
  template <typename Op>
  static void Collect(Touch* touch, Op* op, unsigned long long, CUstream) {
    Collect(touch, size_t{1}, op);
  }

 private:
  // Lengths between two pointers are in bytes.
  template <typename Op>
  static void Written(Touch* touch, const Op& op) {
    if (op.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
      return;
    const auto place = [&](const auto& operand) {
      const uint64_t pitch = operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : op.extent.width;
      const uint64_t height = operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : op.extent.height;
      return PitchedPlace{operand.op.ptr.ptr, pitch, pitch * height};
    };
    CollectPitchedWrite(touch, place(op.dst), place(op.src), op.extent.width, op.extent.height,
                        op.extent.depth);
  }
  // A legal copy stays inside one allocation, so its first byte names the block; lengths here are in elements
  // of the other side's array, which are not known.
  template <typename OperandType>
  static void Operand(Touch* touch, const OperandType& operand) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) touch->Address(operand.op.ptr.ptr);
  }
};

// (destination, value, count[, stream]); the value's type is the element's.
struct Memset {
  template <typename D, typename V, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, V, N count, Rest...) {
    touch->Range(AddressOf(destination), count * sizeof(V));
    touch->Writes(AddressOf(destination), count * sizeof(V));
  }
};

// (destination, pitch, value, width, height[, stream]).
struct PitchedMemset {
  template <typename D, typename P, typename V, typename N, typename... Rest>
  static void Collect(Touch* touch, D destination, P pitch, V, N width, N height, Rest...) {
    touch->PitchedRange(AddressOf(destination), pitch, width * sizeof(V), height);
    for (N row = 0; row < height; ++row)
      touch->Writes(AddressOf(destination) + row * pitch, width * sizeof(V));
  }
};

// (address, bytes, ...).
struct OneRange {
  template <typename... Rest>
  static void Collect(Touch* touch, CUdeviceptr address, size_t bytes, Rest...) {
    touch->Range(address, bytes);
  }
};

// (addresses, sizes, count, ...).
struct RangeBatch {
  template <typename... Rest>
  static void Collect(Touch* touch, const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                      Rest...) {
    for (size_t i = 0; addresses != nullptr && sizes != nullptr && i < count; ++i) {
      touch->Range(addresses[i], sizes[i]);
    }
  }
};

// (parameters, count, ...) of the decompression engine.
struct DecompressBatch {
  template <typename Params, typename... Rest>
  static void Collect(Touch* touch, const Params* params, size_t count, Rest...) {
    if constexpr (std::is_void_v<Params>) {
      touch->NotUnderstood("cuMemBatchDecompressAsync (built against a toolkit that lacks it)");
    } else {
      for (size_t i = 0; params != nullptr && i < count; ++i) {
        touch->Range(AddressOf(params[i].src), params[i].srcNumBytes);
        touch->Range(AddressOf(params[i].dst), params[i].dstNumBytes);
        touch->Range(AddressOf(params[i].dstActBytes), sizeof(cuuint32_t));
      }
    }
  }
};

// (stream, address, value, flags), and (stream, count, operations, flags): each operation's words are looked
// through.
struct StreamWord {
  template <typename V>
  static void Collect(Touch* touch, CUstream, CUdeviceptr address, V, unsigned int) {
    touch->Address(address);
  }
};
struct StreamWordBatch {
  static void Collect(Touch* touch, CUstream, unsigned int count, const CUstreamBatchMemOpParams* ops,
                      unsigned int) {
    if (ops != nullptr) ScanBytes(ops, count * sizeof(*ops), touch->map(), &touch->set());
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_
