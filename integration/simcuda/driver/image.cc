#include "integration/simcuda/driver/image.h"

#include <elf.h>

#include <cctype>
#include <cstring>
#include <sstream>
#include <string_view>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

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
  ImageKernel kernel = {std::string(line.substr(kName, space - kName))};  // which may have spaces in it
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
      contents->kernels.push_back({std::string(line)});
    }
  }
  return true;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// ".entry name (" anywhere in the text; comments that hold the word do no harm, their names are bound to nothing.
void ReadPtx(std::string_view text, std::vector<ImageKernel>* kernels) {
  constexpr std::string_view kEntry = ".entry";
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at + 1)) {
    size_t start = at + kEntry.size();
    while (start < text.size() && std::isspace(static_cast<unsigned char>(text[start]))) ++start;
    size_t end = start;
    while (end < text.size() && IsNameCharacter(text[end])) ++end;
    if (end > start) kernels->push_back({std::string(text.substr(start, end - start))});
  }
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
  constexpr std::string_view kPrefix = ".text.";
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const std::string_view name = names + section(i).sh_name;
    if (name.substr(0, kPrefix.size()) == kPrefix)
      kernels->push_back({std::string(name.substr(kPrefix.size()))});
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
