#include "policy/estimate/model_shape.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

constexpr uint64_t kMaxLayers = 1000, kMaxWidth = 1 << 20, kMaxVocabulary = 1 << 24;

struct Named {
  const char* name;
  const char* other;  // name; or null
  ModelShape shape;
};

// Granite code models: arXiv 2405.04324, table of architectures; 3B and 8B are Llamas with the head tied and
// with biases in attention and feed-forward (transformers' pull request 30031, which made them settings of
// Llama's config for these two), 20B and 34B GPTBigCode with one head for keys and values. Llama 3: arXiv
// 2407.21783, table 3.
const std::array<Named, 6> kNamed = {{
    {"granite-20b",
     nullptr,
     {.family = Family::kGpt2,
      .layers = 52,
      .width = 6144,
      .wide = 24576,
      .heads = 48,
      .key_heads = 1,
      .head_width = 128,
      .vocabulary = 49152,
      .positions = 8192,
      .tied = true,
      .attention_bias = true,
      .feed_forward_bias = true,
      .dropout = true,
      .attention_dropout = true,
      .embedding_dropout = true}},
    {"granite-34b",
     nullptr,
     {.family = Family::kGpt2,
      .layers = 88,
      .width = 6144,
      .wide = 24576,
      .heads = 48,
      .key_heads = 1,
      .head_width = 128,
      .vocabulary = 49152,
      .positions = 8192,
      .tied = true,
      .attention_bias = true,
      .feed_forward_bias = true,
      .dropout = true,
      .attention_dropout = true,
      .embedding_dropout = true}},
    {"granite-3b",
     nullptr,
     {.family = Family::kLlama,
      .layers = 32,
      .width = 2560,
      .wide = 10240,
      .heads = 32,
      .key_heads = 32,
      .head_width = 80,
      .vocabulary = 49152,
      .gated = true,
      .tied = true,
      .attention_bias = true,
      .feed_forward_bias = true}},
    {"granite-8b",
     "granite-code-8b",
     {.family = Family::kLlama,
      .layers = 36,
      .width = 4096,
      .wide = 14336,
      .heads = 32,
      .key_heads = 8,
      .head_width = 128,
      .vocabulary = 49152,
      .gated = true,
      .tied = true,
      .attention_bias = true,
      .feed_forward_bias = true}},
    {"llama-70b",
     "llama3-70b",
     {.family = Family::kLlama,
      .layers = 80,
      .width = 8192,
      .wide = 28672,
      .heads = 64,
      .key_heads = 8,
      .head_width = 128,
      .vocabulary = 128256,
      .gated = true}},
    {"llama-8b",
     "llama3-8b",
     {.family = Family::kLlama,
      .layers = 32,
      .width = 4096,
      .wide = 14336,
      .heads = 32,
      .key_heads = 8,
      .head_width = 128,
      .vocabulary = 128256,
      .gated = true}},
}};

struct Size {
  const char* name;
  uint64_t value, most;
};

}  // namespace

uint64_t ModelShape::Parameters() const {
  const uint64_t inner = heads * head_width, narrow = key_heads * head_width;
  const uint64_t attention = width * inner + 2 * width * narrow + inner * width;
  const uint64_t biases = attention_bias ? inner + 2 * narrow + width : 0;
  const uint64_t inwards = gated ? 2 : 1;  // products into the wide space; one leads back
  const uint64_t feed_forward =
      (inwards + 1) * width * wide + (feed_forward_bias ? inwards * wide + width : 0);
  const bool centred = family == Family::kGpt2 || family == Family::kBert;
  const uint64_t norm = centred ? 2 * width : width;
  const uint64_t embeddings = (vocabulary + positions + token_types) * width;
  uint64_t all = embeddings + layers * (attention + biases + feed_forward + 2 * norm);
  if (family != Family::kBert) all += norm;
  if (!tied) all += vocabulary * width;
  if (family == Family::kBert) all += 2 * norm + width * width + width + vocabulary;  // embedding norm, head
  if (family == Family::kT5)
    all += decoder_layers * (2 * (attention + biases) + feed_forward + 3 * norm) + norm + 2 * buckets * heads;
  return all;
}

absl::Status CheckShape(const ModelShape& shape) {
  for (const Size& size :
       {Size{"layers", shape.layers, kMaxLayers}, Size{"width", shape.width, kMaxWidth},
        Size{"feed-forward width", shape.wide, kMaxWidth}, Size{"heads", shape.heads, kMaxWidth},
        Size{"key heads", shape.key_heads, kMaxWidth}, Size{"head width", shape.head_width, kMaxWidth},
        Size{"vocabulary", shape.vocabulary, kMaxVocabulary}}) {
    if (size.value == 0 || size.value > size.most)
      return absl::InvalidArgumentError(
          absl::StrCat(size.name, " = ", size.value, " is invalid; expected: 1 to ", size.most));
  }
  if (shape.heads * shape.head_width > kMaxWidth)
    return absl::InvalidArgumentError(absl::StrCat("heads x head width = ", shape.heads * shape.head_width,
                                                   " is invalid; expected: up to ", kMaxWidth));
  if (shape.decoder_layers > kMaxLayers || shape.positions > kMaxVocabulary ||
      shape.token_types > kMaxVocabulary || shape.buckets > kMaxVocabulary)
    return absl::InvalidArgumentError(
        absl::StrCat("positions, token types or decoder layers are invalid: ", "more than ",
                     kMaxVocabulary, " or ", kMaxLayers));
  if (shape.heads % shape.key_heads != 0)
    return absl::InvalidArgumentError(absl::StrCat("heads = ", shape.heads, " is invalid with ",
                                                   shape.key_heads,
                                                   " key heads; expected: a multiple of them"));
  return absl::OkStatus();
}

std::string ShapeNames(std::optional<Family> family) {
  std::string names;
  for (const Named& one : kNamed) {
    if (family && one.shape.family != *family) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", one.name);
    if (one.other != nullptr) absl::StrAppend(&names, " (", one.other, ")");
  }
  return names;
}

absl::StatusOr<ModelShape> NamedShape(absl::string_view name) {
  for (const Named& one : kNamed) {
    if (name == one.name || (one.other != nullptr && name == one.other)) return one.shape;
  }
  return absl::NotFoundError(absl::StrCat("no model is called '", name, "'; there are ", ShapeNames()));
}

}  // namespace spillway::policy
