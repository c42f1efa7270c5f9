#include "integration/hooks/copy_access_sets.h"

#include "io/os/readable.h"

namespace spillway::integration {
namespace {

// The driver's answer to where the source of a copy is.
enum class SourceKind : uint8_t {
  kHost,      // known to the driver, and pinned
  kDevice,    // known to the driver
  kUnknown,   // INVALID_VALUE: pageable host memory, or none
  kNoAnswer,  // the driver answered about something else
};

SourceKind KindOf(const HookState& state, uint64_t address) {
  const auto query = state.real.Ask<Row::cuPointerGetAttribute>();
  if (query == nullptr) return SourceKind::kNoAnswer;
  unsigned int type = 0;
  const CUresult result = query(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == CUDA_ERROR_INVALID_VALUE) return SourceKind::kUnknown;
  if (result != CUDA_SUCCESS) return SourceKind::kNoAnswer;
  return type == CU_MEMORYTYPE_HOST ? SourceKind::kHost : SourceKind::kDevice;
}

// Records one run of a copy whose source may be scanned. Bytes that cannot be read here are no host memory;
// the addresses in them are those that are known to lie there. Both may be true of a place about which the
// driver gave no answer.
void CollectRun(AccessSetBuilder* builder, SourceKind kind, uint64_t destination, uint64_t source,
                uint64_t bytes) {
  const bool from_host =
      kind == SourceKind::kHost || (kind != SourceKind::kDevice && os::IsReadable(source, bytes));
  if (from_host) builder->WritesFromHost(destination, reinterpret_cast<const void*>(source), bytes);
  if (!from_host || kind == SourceKind::kNoAnswer) builder->WritesFromDevice(destination, source, bytes);
}

// Returns whether a source of this many bytes may be a table in host memory.
bool MayBeHostTable(const AccessSetBuilder& builder, uint64_t source, uint64_t bytes) {
  return bytes <= AccessSetBuilder::kLargestPointerTable && source != 0 && !builder.map().Contains(source);
}

}  // namespace

void CollectUnknownSource(AccessSetBuilder* builder, CUdeviceptr destination, CUdeviceptr source,
                          uint64_t bytes) {
  const bool look = bytes >= sizeof(uint64_t) && MayBeHostTable(*builder, source, bytes);
  CollectRun(builder, look ? KindOf(*builder->state(), source) : SourceKind::kDevice, destination, source,
             bytes);
}

void CollectPitchedWrite(AccessSetBuilder* builder, const PitchedPlace& to, const PitchedPlace& from,
                         uint64_t width, uint64_t rows, uint64_t layers) {
  const bool look = MayBeHostTable(*builder, from.address, width * rows * layers);
  const SourceKind kind = look ? KindOf(*builder->state(), from.address) : SourceKind::kDevice;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (uint64_t row = 0; row < rows; ++row) {
      CollectRun(builder, kind, to.address + layer * to.layer + row * to.pitch,
                 from.address + layer * from.layer + row * from.pitch, width);
    }
  }
}

}  // namespace spillway::integration
