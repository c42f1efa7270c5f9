// Driver functions: tensor maps. The 128 bytes are in a layout of ours. The address is shifted and split over
// two words, as on hardware, sizes are stored less one and strides in units of 16 bytes, so that no part
// looks like a pointer.
#include <algorithm>
#include <cstring>

#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

constexpr uint64_t kMapTag = 0x544d4150;  // in the upper half of word 0
constexpr unsigned kRankMax = 5;

enum Word {
  kHead = 0,
  kAddressLow = 1,
  kAddressHigh = 2,
  kDims = 3,
  kSteps = 6,
  kCorners = 11,
  kColumn = 13
};

unsigned ElementBits(int type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 32;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 64;
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B: return 6;
    default: return 0;
  }
}

bool IsWidePacked(int type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}
bool IsFloat(int type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
         (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT32 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
}

// The modes that matter to validity only, besides what a decoded map holds.
struct Modes {
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

uint64_t AddressUnit(const simcuda_tensor_map& map, const Modes& modes) {
  return modes.interleave == CU_TENSOR_MAP_INTERLEAVE_32B || IsWidePacked(map.data_type) ? 32 : 16;
}

bool AreModesSane(const simcuda_tensor_map& map, const Modes& modes, uint64_t inner_bytes) {
  if (modes.interleave < 0 || modes.interleave > CU_TENSOR_MAP_INTERLEAVE_32B || modes.swizzle < 0 ||
      modes.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B || modes.promotion < 0 ||
      modes.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B || modes.fill < 0 ||
      modes.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) {
    return false;
  }
  if (modes.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !IsFloat(map.data_type)) return false;
  if (modes.interleave == CU_TENSOR_MAP_INTERLEAVE_32B && modes.swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
    return false;
  if (modes.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
    return map.rank >= 3 && map.data_type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
  }
  switch (modes.swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: return true;
    case CU_TENSOR_MAP_SWIZZLE_32B: return inner_bytes <= 32 && !IsWidePacked(map.data_type);
    case CU_TENSOR_MAP_SWIZZLE_64B: return inner_bytes <= 64 && !IsWidePacked(map.data_type);
    default: return inner_bytes <= 128;
  }
}

// Address, sizes and strides, common to all kinds.
bool IsTensorSane(const simcuda_tensor_map& map, const Modes& modes) {
  const uint64_t unit = AddressUnit(map, modes);
  if (map.address == 0 || map.address % unit != 0) return false;
  for (unsigned i = 0; i < map.rank; ++i) {
    if (map.dim[i] == 0 || map.dim[i] > uint64_t{1} << 32) return false;
    if (map.element_stride[i] == 0 || map.element_stride[i] > 8) return false;
    if (i > 0 && (map.stride[i] == 0 || map.stride[i] % unit != 0 || map.stride[i] >= uint64_t{1} << 40))
      return false;
  }
  if (IsWidePacked(map.data_type)) return map.dim[0] % 128 == 0;
  return map.data_type != CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B || map.dim[0] % 2 == 0;
}

bool IsBoxSane(const simcuda_tensor_map& map, const Modes& modes) {
  for (unsigned i = 0; i < map.rank; ++i) {
    if (map.box[i] == 0 || map.box[i] > 256) return false;
  }
  if (IsWidePacked(map.data_type)) return map.box[0] == 128;
  return modes.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || map.box[0] * map.element_bits % 128 == 0;
}

bool AreCornersSane(const simcuda_tensor_map& map) {
  // The range of an offset shrinks with the number of dimensions that share the field.
  const unsigned corners = map.kind == SIMCUDA_TENSOR_IM2COL_WIDE ? 1 : map.rank - 2;
  const int limit = corners == 1 ? 1 << 15 : corners == 2 ? 1 << 7 : 1 << 4;
  for (unsigned i = 0; i < corners; ++i) {
    if (map.lower_corner[i] < -limit || map.lower_corner[i] >= limit || map.upper_corner[i] < -limit ||
        map.upper_corner[i] >= limit) {
      return false;
    }
  }
  if (IsWidePacked(map.data_type) && map.channels_per_pixel != 128) return false;
  return map.channels_per_pixel != 0 && map.channels_per_pixel <= 256 && map.pixels_per_column != 0 &&
         map.pixels_per_column <= 1024;
}

void PutAddress(uint64_t address, uint64_t* words) {
  words[kAddressLow] = (address & 0xffffffff) << 20 | 0x5;
  words[kAddressHigh] = (address >> 32) << 8 | 0x3;
}
uint64_t TakeAddress(const uint64_t* words) {
  return (words[kAddressLow] >> 20 & 0xffffffff) | (words[kAddressHigh] >> 8) << 32;
}

void Pack(const simcuda_tensor_map& map, uint64_t unit, uint64_t* words) {
  std::fill_n(words, sizeof(CUtensorMap) / sizeof(uint64_t), 0);
  words[kHead] = kMapTag << 32 | (unit == 32 ? 1 << 12 : 0) | static_cast<uint64_t>(map.kind) << 8 |
                 (map.rank - 1) << 5 | static_cast<uint64_t>(map.data_type);
  PutAddress(map.address, words);
  for (unsigned i = 0; i < kRankMax; ++i) {
    if (i < map.rank) words[kDims + i / 2] |= (map.dim[i] - 1) << (i % 2 * 32);
    words[kSteps + i] =
        (i > 0 ? map.stride[i] >> 4 : 0) | uint64_t{map.box[i]} << 40 | uint64_t{map.element_stride[i]} << 52;
  }
  for (unsigned i = 0; i < 3; ++i) {
    words[kCorners] |= uint64_t{static_cast<uint16_t>(map.lower_corner[i])} << (16 * i);
    words[kCorners + 1] |= uint64_t{static_cast<uint16_t>(map.upper_corner[i])} << (16 * i);
  }
  words[kColumn] = uint64_t{map.channels_per_pixel} << 16 | map.pixels_per_column;
}

bool Unpack(const uint64_t* words, simcuda_tensor_map* map) {
  if (words[kHead] >> 32 != kMapTag) return false;
  map->kind = static_cast<int>(words[kHead] >> 8 & 3);
  map->rank = static_cast<unsigned>(words[kHead] >> 5 & 7) + 1;
  map->data_type = static_cast<int>(words[kHead] & 31);
  map->element_bits = ElementBits(map->data_type);
  if (map->rank > kRankMax || map->element_bits == 0) return false;
  map->address = TakeAddress(words);
  for (unsigned i = 0; i < kRankMax; ++i) {
    const uint64_t steps = words[kSteps + i];
    map->dim[i] = i < map->rank ? (words[kDims + i / 2] >> (i % 2 * 32) & 0xffffffff) + 1 : 0;
    map->stride[i] = i > 0 ? (steps & ((uint64_t{1} << 40) - 1)) << 4 : map->element_bits / 8;
    map->box[i] = static_cast<uint32_t>(steps >> 40 & 0xfff);
    map->element_stride[i] = static_cast<uint32_t>(steps >> 52);
  }
  for (unsigned i = 0; i < 3; ++i) {
    map->lower_corner[i] = static_cast<int16_t>(words[kCorners] >> (16 * i));
    map->upper_corner[i] = static_cast<int16_t>(words[kCorners + 1] >> (16 * i));
  }
  map->channels_per_pixel = static_cast<uint32_t>(words[kColumn] >> 16);
  map->pixels_per_column = static_cast<uint32_t>(words[kColumn] & 0xffff);
  map->bytes = (map->dim[0] * map->element_bits + 7) / 8;
  for (unsigned i = 1; i < map->rank; ++i) map->bytes += (map->dim[i] - 1) * map->stride[i];
  return true;
}

// Fills what all kinds are given in the same way; false when it cannot be read.
bool Describe(int kind, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
              const cuuint64_t* strides, const cuuint32_t* element_strides, simcuda_tensor_map* map) {
  const unsigned least = kind == SIMCUDA_TENSOR_TILED ? 1 : 3;
  if (rank < least || rank > kRankMax || dims == nullptr || (strides == nullptr && rank > 1) ||
      element_strides == nullptr || ElementBits(type) == 0) {
    return false;
  }
  map->kind = kind;
  map->data_type = type;
  map->element_bits = ElementBits(type);
  map->rank = rank;
  map->address = reinterpret_cast<uint64_t>(address);
  for (unsigned i = 0; i < rank; ++i) {
    map->dim[i] = dims[i];
    map->element_stride[i] = element_strides[i];
    if (i > 0) map->stride[i] = strides[i - 1];
  }
  return true;
}

// Not by the type's member: headers before CUDA 13 align the type to 64 bytes only.
uint64_t* WordsOf(CUtensorMap* tensor_map) { return reinterpret_cast<uint64_t*>(tensor_map); }

CUresult Encode(CUtensorMap* tensor_map, const simcuda_tensor_map& map, const Modes& modes) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (tensor_map == nullptr || reinterpret_cast<uintptr_t>(tensor_map) % 64 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t inner = map.kind == SIMCUDA_TENSOR_TILED ? map.box[0] : map.channels_per_pixel;
  const bool shape_sane = map.kind == SIMCUDA_TENSOR_TILED ? IsBoxSane(map, modes) : AreCornersSane(map);
  if (!shape_sane || !IsTensorSane(map, modes) || !AreModesSane(map, modes, inner * map.element_bits / 8))
    return CUDA_ERROR_INVALID_VALUE;
  Pack(map, AddressUnit(map, modes), WordsOf(tensor_map));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuTensorMapEncodeTiled(CUtensorMap* tensor_map, CUtensorMapDataType type,
                                            cuuint32_t rank, void* address, const cuuint64_t* dims,
                                            const cuuint64_t* strides, const cuuint32_t* box,
                                            const cuuint32_t* element_strides,
                                            CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                            CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  simcuda_tensor_map map = {};
  if (box == nullptr ||
      !simcuda::Describe(SIMCUDA_TENSOR_TILED, type, rank, address, dims, strides, element_strides, &map)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::copy_n(box, rank, map.box);
  return simcuda::Encode(tensor_map, map, {interleave, swizzle, promotion, fill});
}

SIMCUDA_API CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensor_map, CUtensorMapDataType type,
                                             cuuint32_t rank, void* address, const cuuint64_t* dims,
                                             const cuuint64_t* strides, const int* lower, const int* upper,
                                             cuuint32_t channels, cuuint32_t pixels,
                                             const cuuint32_t* element_strides,
                                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  simcuda_tensor_map map = {};
  if (lower == nullptr || upper == nullptr ||
      !simcuda::Describe(SIMCUDA_TENSOR_IM2COL, type, rank, address, dims, strides, element_strides, &map)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::copy_n(lower, rank - 2, map.lower_corner);
  std::copy_n(upper, rank - 2, map.upper_corner);
  map.channels_per_pixel = channels;
  map.pixels_per_column = pixels;
  return simcuda::Encode(tensor_map, map, {interleave, swizzle, promotion, fill});
}

#if CUDA_VERSION >= 12080
SIMCUDA_API CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensor_map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
    const cuuint64_t* strides, int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  simcuda_tensor_map map = {};
  if (mode < 0 || mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 ||
      !simcuda::Describe(SIMCUDA_TENSOR_IM2COL_WIDE, type, rank, address, dims, strides, element_strides,
                         &map)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  map.lower_corner[0] = lower;
  map.upper_corner[0] = upper;
  map.channels_per_pixel = channels;
  map.pixels_per_column = pixels;
  return simcuda::Encode(tensor_map, map, {interleave, swizzle, promotion, fill});
}
#endif

SIMCUDA_API CUresult cuTensorMapReplaceAddress(CUtensorMap* tensor_map, void* address) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  simcuda_tensor_map map = {};
  if (tensor_map == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t* const words = simcuda::WordsOf(tensor_map);
  if (!simcuda::Unpack(words, &map)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t unit = (words[simcuda::kHead] >> 12 & 1) != 0 ? 32 : 16;
  const auto start = reinterpret_cast<uint64_t>(address);
  if (start == 0 || start % unit != 0) return CUDA_ERROR_INVALID_VALUE;
  simcuda::PutAddress(start, words);
  return CUDA_SUCCESS;
}

SIMCUDA_API int simcuda_decode_tensor_map(const void* map, simcuda_tensor_map* decoded) {
  if (map == nullptr || decoded == nullptr || decoded->struct_bytes > sizeof(*decoded))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t words[sizeof(CUtensorMap) / sizeof(uint64_t)];
  std::memcpy(words, map, sizeof(words));
  simcuda_tensor_map all = {};
  if (!simcuda::Unpack(words, &all)) return CUDA_ERROR_INVALID_VALUE;
  all.struct_bytes = decoded->struct_bytes;
  std::memcpy(decoded, &all, decoded->struct_bytes);
  return CUDA_SUCCESS;
}
