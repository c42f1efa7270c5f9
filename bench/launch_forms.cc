#include "bench/launch_forms.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace spillway::bench {
namespace {

LaunchForm Form(std::string name, size_t repeated, size_t bytes, size_t last_bytes, size_t pointers) {
  LaunchForm form;
  form.name = std::move(name);
  form.kernel.parameter_bytes.assign(repeated, bytes);
  if (last_bytes != 0) form.kernel.parameter_bytes.push_back(last_bytes);
  form.pointers = pointers;
  return form;
}

LaunchForm Elementwise() {
  LaunchForm form;
  form.name = "elementwise, 4+16+32 B, 3 pointers";
  form.kernel.parameter_bytes = {4, 16, 32};
  form.pointers = 3;
  return form;
}

// What launches pass besides addresses of the device.
uint64_t OtherWord(std::mt19937_64* random) {
  switch ((*random)() % 4) {
    case 0: return (*random)() % 100'000;                            // a count or a size
    case 1: return 0x3f8000003f800000u ^ ((*random)() % (1 << 20));  // two floats
    case 2: return 0x7f0000000000u + (*random)() % (1u << 30);       // a host address
    default: return (*random)() | uint64_t{1} << 63;                 // anything
  }
}

}  // namespace

const std::vector<LaunchForm>& LaunchForms() {
  static const std::vector<LaunchForm> forms = {
      Elementwise(),
      Form("64 x 8 B, no pointer", 64, 8, 0, 0),
      Form("64 x 8 B, 24 pointers", 64, 8, 0, 24),
      Form("one 4,096 B struct, no pointer", 0, 0, 4096, 0),
      Form("one 4,096 B struct, 64 pointers", 0, 0, 4096, 64),
      Form("64 x 64 B, 40 pointers", 64, 64, 0, 40),
      Form("63 x 8 B + 4,096 B struct, 64 pointers", 63, 8, 4096, 64),
      Form("one 32,760 B struct, 100 pointers", 0, 0, 32760, 100),
  };
  return forms;
}

std::vector<ArgumentSet> MakeArguments(const LaunchForm& form, size_t count,
                                       const std::vector<uint64_t>& blocks, uint64_t block_bytes) {
  std::mt19937_64 random(form.pointers * 1000 + form.kernel.parameter_bytes.size());
  size_t words = 0;
  for (const size_t bytes : form.kernel.parameter_bytes) words += (bytes + 7) / 8;
  // Small parameters take a word of their own, which holds no address.
  std::vector<size_t> places;
  size_t at = 0;
  for (const size_t bytes : form.kernel.parameter_bytes) {
    for (size_t word = 0; word + 1 <= bytes / 8; ++word) places.push_back(at + word);
    at += (bytes + 7) / 8;
  }
  // A kernel has its pointers where its type has them: the same places in every set.
  std::shuffle(places.begin(), places.end(), random);
  std::vector<ArgumentSet> sets(count);
  for (ArgumentSet& set : sets) {
    set.words.resize(words);
    for (uint64_t& word : set.words) word = OtherWord(&random);
    const size_t first = random() % blocks.size();
    for (size_t i = 0; i < form.pointers; ++i) {
      const uint64_t block = blocks[(first + i * 7919) % blocks.size()];
      set.words[places[i]] = block + random() % block_bytes;
    }
    at = 0;
    for (const size_t bytes : form.kernel.parameter_bytes) {
      set.params.push_back(&set.words[at]);
      at += (bytes + 7) / 8;
    }
  }
  return sets;
}

}  // namespace spillway::bench
