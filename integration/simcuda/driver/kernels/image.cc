#include "integration/simcuda/driver/kernels/image.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

namespace simcuda {
namespace {

ImageKernel Named(std::string_view name) {
  ImageKernel kernel;
  kernel.name = name;
  return kernel;
}

// ".global NAME BYTES"
bool ReadGlobal(std::string_view line, std::vector<ImageGlobal>* globals) {
  std::istringstream words{std::string(line)};
  std::string keyword;
  ImageGlobal global = {};
  if (!(words >> keyword >> global.name >> global.bytes) || global.bytes == 0) return false;
  globals->push_back(std::move(global));
  return true;
}

// ".kernel NAME PARAMETERS"
bool ReadKernel(std::string_view line, std::vector<ImageKernel>* kernels) {
  const size_t space = line.rfind(' ');
  constexpr size_t kName = std::string_view(".kernel ").size();
  if (space == std::string_view::npos || space <= kName) return false;
  ImageKernel kernel;
  kernel.name = line.substr(kName, space - kName);  // which may have spaces in it
  std::istringstream number{std::string(line.substr(space + 1))};
  if (!(number >> kernel.parameters) || kernel.parameters < 0) return false;
  kernels->push_back(std::move(kernel));
  return true;
}

bool ReadOurs(std::string_view text, ImageContents* contents) {
  size_t at = text.find('\n');
  while (at != std::string_view::npos) {
    const size_t start = at + 1;
    at = text.find('\n', start);
    const std::string_view line = text.substr(start, at == std::string_view::npos ? at : at - start);
    if (line.substr(0, 7) == ".global") {
      if (!ReadGlobal(line, &contents->globals)) return false;
    } else if (line.substr(0, 7) == ".kernel") {
      if (!ReadKernel(line, &contents->kernels)) return false;
    } else if (!line.empty()) {
      contents->kernels.push_back(Named(line));
    }
  }
  return true;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

// The bytes of a type of PTX (".u32", ".b8"), 0 for a word that is none.
size_t BytesOfType(std::string_view word) {
  if (word.size() < 3 || word[0] != '.' || std::string_view("usbf").find(word[1]) == std::string_view::npos)
    return 0;
  const int bits = std::atoi(std::string(word.substr(2)).c_str());
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? static_cast<size_t>(bits) / 8 : 0;
}

// ".param .align 8 .b8 name[24]", ".param .u64 .ptr .align 1 name": its size, and its alignment in the block.
bool ReadPtxParameter(std::string_view text, size_t* bytes, size_t* alignment) {
  std::istringstream words{std::string(text)};
  std::string word;
  size_t of_type = 0;
  if (!(words >> word) || word != ".param") return false;
  *alignment = 0;
  while (words >> word) {
    if (word == ".align" && of_type == 0) {
      words >> *alignment;
    } else if (of_type == 0) {
      of_type = BytesOfType(word);
    }
  }
  const size_t bracket = word.find('[');  // of the last word, which is the name
  *bytes =
      of_type * (bracket == std::string::npos ? 1 : std::strtoull(word.c_str() + bracket + 1, nullptr, 10));
  if (*alignment == 0) *alignment = of_type;
  return *bytes != 0;
}

// "(parameter, parameter ...)" from `at` on.
bool ReadPtxLayout(std::string_view text, size_t at, std::vector<simcuda_parameter>* layout) {
  if (at >= text.size() || text[at] != '(') return false;
  const size_t close = text.find(')', at);
  if (close == std::string_view::npos) return false;
  std::string_view rest = text.substr(at + 1, close - at - 1);
  size_t end = 0;
  while (SkipSpace(rest, 0) != rest.size()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    size_t bytes = 0, alignment = 0;
    if (!ReadPtxParameter(rest.substr(0, comma), &bytes, &alignment)) return false;
    const size_t offset = (end + alignment - 1) / alignment * alignment;
    layout->push_back({offset, bytes});
    end = offset + bytes;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return true;
}

// ".entry name (" anywhere in the text; comments that hold the word do no harm, their names are bound to
// nothing.
void ReadPtx(std::string_view text, std::vector<ImageKernel>* kernels) {
  constexpr std::string_view kEntry = ".entry";
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at + 1)) {
    const size_t start = SkipSpace(text, at + kEntry.size());
    size_t end = start;
    while (end < text.size() && IsNameCharacter(text[end])) ++end;
    if (end == start) continue;
    ImageKernel kernel = Named(text.substr(start, end - start));
    kernel.has_layout = ReadPtxLayout(text, SkipSpace(text, end), &kernel.layout);
    kernels->push_back(std::move(kernel));
  }
}

// A section ".nv.info.<name>" is a list of attributes; those of parameters have four words.
std::vector<simcuda_parameter> ReadCubinLayout(const char* info, size_t bytes) {
  constexpr unsigned char kSized = 4, kParameter = 0x17, kWideParameter = 0x45;
  std::vector<simcuda_parameter> layout;
  for (size_t at = 0; at + 4 <= bytes;) {
    const auto format = static_cast<unsigned char>(info[at]),
               attribute = static_cast<unsigned char>(info[at + 1]);
    uint16_t size = 0;
    std::memcpy(&size, info + at + 2, sizeof(size));
    const char* const value = info + at + 4;
    at += format == kSized ? size_t{4} + size : 4;
    if (format != kSized || (attribute != kParameter && attribute != kWideParameter) || size < 12) continue;
    uint16_t offset = 0;
    uint32_t word = 0;
    std::memcpy(&offset, value + 6, sizeof(offset));
    std::memcpy(&word, value + 8, sizeof(word));
    layout.push_back({offset, attribute == kParameter ? word >> 18 : word});
  }
  std::sort(layout.begin(), layout.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return layout;
}

// A kernel of a cubin is code in a section ".text.<name>".
void ReadCubin(const char* image, std::vector<ImageKernel>* kernels) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  const auto section = [&](size_t index) {
    Elf64_Shdr result;
    std::memcpy(&result, image + header.e_shoff + index * header.e_shentsize, sizeof(result));
    return result;
  };
  const char* names = image + section(header.e_shstrndx).sh_offset;
  constexpr std::string_view kCode = ".text.", kInfo = ".nv.info.";
  std::map<std::string, std::vector<simcuda_parameter>> layouts;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr found = section(i);
    const std::string_view name = names + found.sh_name;
    if (name.substr(0, kCode.size()) == kCode) kernels->push_back(Named(name.substr(kCode.size())));
    if (name.substr(0, kInfo.size()) == kInfo)
      layouts[std::string(name.substr(kInfo.size()))] =
          ReadCubinLayout(image + found.sh_offset, found.sh_size);
  }
  for (ImageKernel& kernel : *kernels) {
    const auto layout = layouts.find(kernel.name);
    kernel.has_layout = layout != layouts.end();
    if (kernel.has_layout) kernel.layout = layout->second;
  }
}

}  // namespace

bool ReadImage(const void* image, ImageContents* contents) {
  const char* bytes = static_cast<const char*>(image);
  if (std::strncmp(bytes, SIMCUDA_IMAGE_MAGIC, std::strlen(SIMCUDA_IMAGE_MAGIC)) == 0) {
    return ReadOurs(bytes, contents);
  }
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) {
    ReadCubin(bytes, &contents->kernels);
    return true;
  }
  if (std::strstr(bytes, ".version") != nullptr) {
    ReadPtx(bytes, &contents->kernels);
    return true;
  }
  return false;
}

}  // namespace simcuda
