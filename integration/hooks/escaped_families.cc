#include "integration/hooks/escaped_families.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "io/os/log.h"

namespace spillway::integration {
namespace {

// First words of the tables that CUDA's runtime and libraries are known to ask for
// (docs/escaped-pointers.md).
constexpr unsigned char kKnownTables[][4] = {
    {0x6b, 0xd5, 0xfb, 0x6c},  // runtime interface
    {0xa0, 0x94, 0x79, 0x8c},  // runtime callbacks
    {0x42, 0xd8, 0x5a, 0x81},  // tools' thread-local storage
    {0xc6, 0x93, 0x33, 0x6e},  // context-local storage
    {0x26, 0x3e, 0x88, 0x60},  // context checks
    {0xd4, 0x08, 0x20, 0x55},  // integrity check
    {0xf8, 0xcf, 0xf9, 0x51},  // first asked for by the runtime of 13.0; may be refused
    {0x19, 0x5b, 0xcb, 0xf4},  // heap access
    {0xb1, 0x05, 0x41, 0xe1},  // device extensions of the runtime
    {0x0c, 0xa5, 0x0b, 0x8c},  // context creation
};

bool IsKnown(const CUuuid& id) {
  return std::any_of(std::begin(kKnownTables), std::end(kKnownTables),
                     [&](const auto& known) { return std::memcmp(known, id.bytes, sizeof(known)) == 0; });
}

uint64_t ElementBytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 4;
    default: return 1;  // packed ones, of less than a byte
  }
}

}  // namespace

uint64_t TensorBytes(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* sizes,
                     const cuuint64_t* strides) {
  if (rank == 0 || sizes == nullptr) return 1;
  uint64_t bytes = sizes[0] * ElementBytes(type);
  for (cuuint32_t i = 1; i < rank && strides != nullptr; ++i) bytes += (sizes[i] - 1) * strides[i - 1];
  return std::max<uint64_t>(bytes, 1);
}

CUresult NoteTensorMap(const RowInfo& row, const CUtensorMap* map, uint64_t address, uint64_t bytes) {
  HookScope scope;
  AccessSetBuilder* const builder = scope.builder();
  if (builder == nullptr || map == nullptr || !builder->map().Contains(address)) return CUDA_SUCCESS;
  HookState* const state = builder->state();
  if (state->tensor_maps.Note(map, {address, bytes}, builder->map())) return CUDA_SUCCESS;
  builder->Range(address, bytes);
  state->pin_reports.Report(allocator::PinReason::kUnknownCall, row.symbol);
  return PassPinning(builder, allocator::PinReason::kUnknownCall, [] { return CUDA_SUCCESS; });
}

CUresult TensorMapMoved::Call(const RowInfo& row, decltype(&::cuTensorMapReplaceAddress) real,
                              CUtensorMap* map, void* address) {
  // The map's old content tells how many bytes it covers. A map over external memory is taken to lie in one
  // block.
  const uint64_t known = map == nullptr ? 0 : GetHookState()->tensor_maps.Find(map).bytes;
  const CUresult result = real(map, address);
  if (result != CUDA_SUCCESS) return result;
  return NoteTensorMap(row, map, AddressOf(address), std::max<uint64_t>(known, 1));
}

CUresult ExportTable::Call(const RowInfo&, decltype(&::cuGetExportTable) real, const void** table,
                           const CUuuid* id) {
  const CUresult result = real(table, id);
  HookState* const state = GetHookState();
  if (result != CUDA_SUCCESS || id == nullptr || IsKnown(*id)) return result;
  char name[40] = "private driver table ";
  for (int i = 0; i < 4; ++i) {
    const size_t length = std::strlen(name);
    std::snprintf(name + length, sizeof(name) - length, "%02x", static_cast<unsigned char>(id->bytes[i]));
  }
  HookContext* const context = ContextOf(state);
  if (context != nullptr && context->strict) {
    SwitchEvictionOff(state, name);
  } else {
    os::Log(os::LogLevel::kWarn, std::string("a library asked for the ") + name +
                                     ", which is not known: launches through it would not be seen");
  }
  return result;
}

}  // namespace spillway::integration
