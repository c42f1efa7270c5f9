// Readers of the arguments of copies, memsets, prefetches, and words that streams read or write. Each adds
// the ranges that the arguments name to the call's access-set builder, and records which device memory is
// written: addresses of ours that lay there are gone, and others may be put there. The readers are templates
// over the ABIs; a 32-bit address of the first interface is never ours and adds nothing. The wrappers'
// families call them on the thread of the call, before the gate. They cannot fail; arguments that the driver
// will refuse add nothing.

#ifndef SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_
#define SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_

#include <cstdint>
#include <cstring>

#include "integration/hooks/access_set_builder.h"

namespace spillway::integration {

// Returns an enumerator of a struct of the job's as a number, since it may be newer than our headers.
template <typename E>
int ValueOf(const E& enumerator) {
  static_assert(sizeof(E) == sizeof(int));
  int value = 0;
  std::memcpy(&value, &enumerator, sizeof(value));
  return value;
}

// Records a copy whose call does not say of which kind it is. The source is scanned for addresses if it is
// small (kLargestPointerTable) and on the host. The driver is asked where the source is. If its answer is an
// error about something else, every source that this process can read is scanned, and the known addresses on
// the device count as well. Memory that nobody knows and nobody can read is left to the driver.
void CollectUnknownSource(AccessSetBuilder* builder, CUdeviceptr destination, CUdeviceptr source,
                          uint64_t bytes);
// The beginning of one side of a copy of rows and layers, and the distances between them.
struct PitchedPlace {
  uint64_t address = 0;  // of the first byte
  uint64_t pitch = 0;    // bytes from one row to the next
  uint64_t layer = 0;    // bytes from one layer to the next
};
// Like CollectUnknownSource, for `layers` layers of `rows` rows of `width` bytes.
void CollectPitchedWrite(AccessSetBuilder* builder, const PitchedPlace& to, const PitchedPlace& from,
                         uint64_t width, uint64_t rows, uint64_t layers);

// Takes (destination, source, bytes[, ...]). Adds both ranges, and records nothing as written.
struct TwoRanges {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, S source, N bytes, Rest...) {
    builder->Range(AddressOf(destination), bytes);
    builder->Range(AddressOf(source), bytes);
  }
};

// Like TwoRanges, with both sides on devices.
struct DeviceCopy {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, S source, N bytes, Rest...) {
    TwoRanges::Collect(builder, destination, source, bytes);
    builder->WritesFromDevice(AddressOf(destination), AddressOf(source), bytes);
  }
};

// Like TwoRanges, with one side that may be on the host.
struct LinearCopy {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, S source, N bytes, Rest...) {
    TwoRanges::Collect(builder, destination, source, bytes);
    // A side is not ours. If it is pageable host memory, the call waits for the GPU.
    const auto& map = builder->map();
    if (!map.Contains(AddressOf(destination)) || !map.Contains(AddressOf(source))) builder->may_block = true;
  }
};

// Reads cuMemcpy and its kin: the call does not tell whether either address is the host's or a device's. Even
// a copy "from the host" does not, since by unified addressing the driver takes device memory there, too, and
// programs rely on it (onnxruntime#11360).
struct UnifiedCopy {
  template <typename D, typename S, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, S source, N bytes, Rest...) {
    LinearCopy::Collect(builder, destination, source, bytes);
    CollectUnknownSource(builder, AddressOf(destination), AddressOf(source), bytes);
  }
};

// Takes (destination, array, offset, bytes). The copy reads an array, which is never ours.
struct ArrayToLinearCopy {
  template <typename D, typename O, typename N>
  static void Collect(AccessSetBuilder* builder, D destination, CUarray, O, N bytes) {
    builder->Range(AddressOf(destination), bytes);
    builder->Writes(AddressOf(destination), bytes);
  }
};
// Takes (array, offset, source, bytes[, stream]). The copy writes an array, which is never ours.
struct LinearToArrayCopy {
  template <typename O, typename S, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, CUarray, O, S source, N bytes, Rest...) {
    builder->Range(AddressOf(source), bytes);
  }
};

// Takes (destination, context, source, context, bytes[, stream]) of a copy between two devices.
struct PeerCopy {
  template <typename... Rest>
  static void Collect(AccessSetBuilder* builder, CUdeviceptr destination, CUcontext, CUdeviceptr source,
                      CUcontext, size_t bytes, Rest...) {
    DeviceCopy::Collect(builder, destination, source, bytes);
  }
};

// Takes a descriptor of a copy in two or three dimensions, of any ABI and of the peer form. The devices'
// contexts are ignored, since addresses are unique in the process.
struct PitchedCopy {
  template <typename Copy, typename... Rest>
  static void Collect(AccessSetBuilder* builder, const Copy* copy, Rest...) {
    if (copy == nullptr) return;  // the driver refuses it
    Written(builder, *copy);
    if constexpr (requires { copy->Depth; }) {
      Side(builder, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcXInBytes,
           copy->srcY + uint64_t{copy->srcZ} * copy->srcHeight, copy->srcPitch, copy->srcHeight, *copy);
      Side(builder, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstXInBytes,
           copy->dstY + uint64_t{copy->dstZ} * copy->dstHeight, copy->dstPitch, copy->dstHeight, *copy);
    } else {
      Side(builder, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcXInBytes, copy->srcY,
           copy->srcPitch, 0, *copy);
      Side(builder, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstXInBytes, copy->dstY,
           copy->dstPitch, 0, *copy);
    }
  }

 private:
  // Records the device memory that the copy writes; nothing if it writes an array or host memory.
  template <typename Copy>
  static void Written(AccessSetBuilder* builder, const Copy& copy) {
    if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_HOST) return;
    if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) return;  // no address is written; the old ones still count
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
    CollectPitchedWrite(builder, to, from, copy.WidthInBytes, copy.Height, layers);
  }

  // Adds the range of one side, from its first row to its last. The rows follow each other if there is no
  // pitch.
  template <typename Copy>
  static void Side(AccessSetBuilder* builder, CUmemorytype type, uint64_t device, const void* host,
                   uint64_t x, uint64_t row, uint64_t pitch, uint64_t layer_rows, const Copy& copy) {
    if (type == CU_MEMORYTYPE_ARRAY) return;                      // never ours
    if (type != CU_MEMORYTYPE_DEVICE) builder->may_block = true;  // may be pageable host memory
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? AddressOf(host) : device;  // unified: as a device
    if (pitch == 0) pitch = copy.WidthInBytes;
    uint64_t rows = copy.Height;
    if constexpr (requires { copy.Depth; }) {
      if (rows == 0 || copy.Depth == 0) return;
      rows += (copy.Depth - 1) * (layer_rows != 0 ? layer_rows : copy.Height);  // up to the last layer
    }
    builder->PitchedRange(base + row * pitch + x, pitch, copy.WidthInBytes, rows);
  }
};

// CUmemcpyAttributes as cuda.h has it from 12.8 on, so that a build against older headers understands the
// call, too.
struct CopyAttributes {
  // The source is read when the stream gets there; with any other order it may be read at any time from the
  // call on.
  static constexpr int kStreamOrder = 1;  // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
  int source_order;                       // CUmemcpySrcAccessOrder
  CUmemLocation hints[2];                 // where source and destination are; ignored
  unsigned int flags;                     // ignored
};
static_assert(sizeof(CopyAttributes) == 24);

// Takes (destination, source, bytes, attributes, stream). The copy is a UnifiedCopy.
struct AttributedCopy {
  static void Collect(AccessSetBuilder* builder, CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                      const void* attributes, CUstream) {
    UnifiedCopy::Collect(builder, destination, source, bytes);
    const auto* const given = static_cast<const CopyAttributes*>(attributes);
    if (given != nullptr && given->source_order != CopyAttributes::kStreamOrder)
      builder->EarlyRange(source, bytes);
  }
};

// Takes (destinations, sources, sizes, count, attributes, indices, attribute count, ...). Each copy is a
// UnifiedCopy. An index names the first copy that its attributes apply to.
struct BatchCopy {
  template <typename... Rest>
  static void Collect(AccessSetBuilder* builder, const CUdeviceptr* destinations, const CUdeviceptr* sources,
                      const size_t* sizes, size_t count, const void* attributes, const size_t* indices,
                      size_t attribute_count, Rest...) {
    if (destinations == nullptr || sources == nullptr || sizes == nullptr) return;  // the driver refuses it
    const auto* const given = static_cast<const CopyAttributes*>(attributes);
    size_t at = 0;  // index of the attributes for copy i
    for (size_t i = 0; i < count; ++i) {
      UnifiedCopy::Collect(builder, destinations[i], sources[i], sizes[i]);
      if (given == nullptr || indices == nullptr || attribute_count == 0) continue;  // the driver refuses it
      while (at + 1 < attribute_count && indices[at + 1] <= i) ++at;
      if (given[at].source_order != CopyAttributes::kStreamOrder) builder->EarlyRange(sources[i], sizes[i]);
    }
  }
};

// Takes operations in three dimensions: a batch (count, operations, ...), or one (operation, flags, stream).
struct PitchedBatchCopy {
  template <typename Op, typename... Rest>
  static void Collect(AccessSetBuilder* builder, size_t count, const Op* ops, Rest...) {
    if constexpr (std::is_void_v<Op>) {
      builder->NotUnderstood("cuMemcpy3DBatchAsync (built against a toolkit that lacks it)");
    } else {
      for (size_t i = 0; ops != nullptr && i < count; ++i) {
        Operand(builder, ops[i].src);
        Operand(builder, ops[i].dst);
        if (ValueOf(ops[i].srcAccessOrder) != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
            ValueOf(ops[i].src.type) == CU_MEMCPY_OPERAND_TYPE_POINTER) {
          builder->EarlyRange(ops[i].src.op.ptr.ptr, 1);  // the first byte names the block, as in Operand
        }
        Written(builder, ops[i]);
      }
    }
  }
  template <typename Op>
  static void Collect(AccessSetBuilder* builder, Op* op, unsigned long long, CUstream) {
    Collect(builder, size_t{1}, op);
  }

 private:
  // Records a write between two pointers, whose lengths are in bytes.
  template <typename Op>
  static void Written(AccessSetBuilder* builder, const Op& op) {
    if (op.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
      return;
    const auto place = [&](const auto& operand) {
      const uint64_t pitch = operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : op.extent.width;
      const uint64_t height = operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : op.extent.height;
      return PitchedPlace{operand.op.ptr.ptr, pitch, pitch * height};
    };
    CollectPitchedWrite(builder, place(op.dst), place(op.src), op.extent.width, op.extent.height,
                        op.extent.depth);
  }
  // A legal copy stays inside one allocation, so its first byte names the block. The lengths here are in
  // elements of the other side's array, whose size is not known.
  template <typename OperandType>
  static void Operand(AccessSetBuilder* builder, const OperandType& operand) {
    if (ValueOf(operand.type) == CU_MEMCPY_OPERAND_TYPE_POINTER) builder->Address(operand.op.ptr.ptr);
  }
};

// Takes (count, operations, flags, stream) of copies over a fabric. An operand is a pointer, or a place in a
// logical endpoint, whose memory stays from the time it was bound. The struct's layout is that of cuda.h from
// 13.5 on.
struct FabricCopy {
  struct Operand {
    static constexpr int kPointer = 1;
    int type;           // kPointer, or the type of an endpoint
    uint64_t address;   // or the endpoint's id
    uint64_t location;  // or the offset in the endpoint
  };
  Operand source, destination;
  uint64_t bytes;  // of the copy
  uint64_t flags;  // ignored
};
static_assert(sizeof(FabricCopy) == 64);

struct FabricCopyBatch {
  static void Collect(AccessSetBuilder* builder, size_t count, const void* ops, unsigned long long,
                      CUstream) {
    const auto* const copies = static_cast<const FabricCopy*>(ops);
    for (size_t i = 0; copies != nullptr && i < count; ++i) {
      const uint64_t from = PointerOf(copies[i].source), to = PointerOf(copies[i].destination);
      builder->Range(from, copies[i].bytes);
      builder->Range(to, copies[i].bytes);
      if (to != 0) CollectUnknownSource(builder, to, from, copies[i].bytes);  // an endpoint is no block
    }
  }

 private:
  static uint64_t PointerOf(const FabricCopy::Operand& operand) {
    return operand.type == FabricCopy::Operand::kPointer ? operand.address : 0;
  }
};

// Takes (destination, value, count[, stream]); the value has the element's type. The addresses that lay there
// are gone. The value is ignored.
struct Memset {
  template <typename D, typename V, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, V, N count, Rest...) {
    builder->Range(AddressOf(destination), count * sizeof(V));
    builder->Writes(AddressOf(destination), count * sizeof(V));
  }
};

// Takes (destination, pitch, value, width, height[, stream]): `height` rows, `pitch` bytes apart.
struct PitchedMemset {
  template <typename D, typename P, typename V, typename N, typename... Rest>
  static void Collect(AccessSetBuilder* builder, D destination, P pitch, V, N width, N height, Rest...) {
    builder->PitchedRange(AddressOf(destination), pitch, width * sizeof(V), height);
    for (N row = 0; row < height; ++row)
      builder->Writes(AddressOf(destination) + row * pitch, width * sizeof(V));
  }
};

// Takes (address, bytes, ...) of a range that is prefetched.
struct OneRange {
  template <typename... Rest>
  static void Collect(AccessSetBuilder* builder, CUdeviceptr address, size_t bytes, Rest...) {
    builder->Range(address, bytes);
  }
};

// Takes (addresses, sizes, count, ...) of ranges that are prefetched or discarded. The addresses that lay in
// a discarded range still count.
struct RangeBatch {
  template <typename... Rest>
  static void Collect(AccessSetBuilder* builder, const CUdeviceptr* addresses, const size_t* sizes,
                      size_t count, Rest...) {
    for (size_t i = 0; addresses != nullptr && sizes != nullptr && i < count; ++i) {
      builder->Range(addresses[i], sizes[i]);
    }
  }
};

// Takes (parameters, count, ...) of the decompression engine: source, destination, and a word for the actual
// size.
struct DecompressBatch {
  template <typename Params, typename... Rest>
  static void Collect(AccessSetBuilder* builder, const Params* params, size_t count, Rest...) {
    if constexpr (std::is_void_v<Params>) {
      builder->NotUnderstood("cuMemBatchDecompressAsync (built against a toolkit that lacks it)");
    } else {
      for (size_t i = 0; params != nullptr && i < count; ++i) {
        builder->Range(AddressOf(params[i].src), params[i].srcNumBytes);
        builder->Range(AddressOf(params[i].dst), params[i].dstNumBytes);
        builder->Range(AddressOf(params[i].dstActBytes), sizeof(cuuint32_t));  // the word for the actual size
      }
    }
  }
};

// Takes (stream, address, value, flags) of a word that a stream waits for or writes. The word that it writes
// may be an address.
struct WordRead {
  template <typename V>
  static void Collect(AccessSetBuilder* builder, CUstream, CUdeviceptr address, V, unsigned int) {
    builder->Address(address);
  }
};
struct WordWritten {
  template <typename V>
  static void Collect(AccessSetBuilder* builder, CUstream, CUdeviceptr address, V value, unsigned int) {
    builder->Address(address);
    builder->WritesFromHost(address, &value, sizeof(value));
  }
};
// Takes (stream, count, operations, flags): the two above, one after the other. The words of an operation
// that is not known are scanned.
struct WordBatch {
  static void Collect(AccessSetBuilder* builder, CUstream stream, unsigned int count,
                      const CUstreamBatchMemOpParams* ops, unsigned int) {
    for (unsigned int i = 0; ops != nullptr && i < count; ++i) {
      const auto& write = ops[i].writeValue;
      switch (ValueOf(ops[i].operation)) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64: builder->Address(ops[i].waitValue.address); break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
          WordWritten::Collect(builder, stream, write.address, write.value, 0);
          break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
          WordWritten::Collect(builder, stream, write.address, write.value64, 0);
          break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: break;                              // no addresses
        default: ScanBytes(&ops[i], sizeof(ops[i]), builder->map(), &builder->set());  // a newer operation
      }
    }
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_COPY_ACCESS_SETS_H_
