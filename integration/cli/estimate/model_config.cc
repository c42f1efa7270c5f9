#include "integration/cli/estimate/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace spillway::integration {
namespace {

using policy::Activation;
using policy::Family;
using policy::ModelShape;

constexpr char kFamilies[] = "bert, gpt2, gpt_bigcode, granite, llama, mistral, t5";
constexpr double kMaxInteger = 9007199254740992;  // 2^53

// Looks keys up, and remembers the first that was wrong.
class Config {
 public:
  explicit Config(const nlohmann::json& json) : json_(json) {}

  uint64_t Size(const char* key) { return Number(key, nullptr); }
  uint64_t Size(const char* key, uint64_t fallback) { return Number(key, &fallback); }

  bool Flag(const char* key, bool fallback) {
    const auto found = Find(key);
    if (found == json_.end()) return fallback;
    if (found->is_boolean()) return found->get<bool>();
    Wrong(key, found->dump(), "true or false");
    return fallback;
  }

  // Returns whether a dropout with this probability does anything.
  bool Dropout(const char* key, double fallback) {
    const auto found = Find(key);
    if (found == json_.end()) return fallback > 0;
    if (found->is_number() && found->get<double>() >= 0 && found->get<double>() <= 1)
      return found->get<double>() > 0;
    Wrong(key, found->dump(), "a probability, 0 to 1");
    return false;
  }

  // Returns whether the key is there with the value null, which may differ from a missing key.
  bool Null(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_null();
  }

  std::string Text(const char* key, const char* fallback) {
    const auto found = Find(key);
    if (found == json_.end()) return fallback;
    if (found->is_string()) return found->get<std::string>();
    Wrong(key, found->dump(), "a text");
    return fallback;
  }

  Activation Act(const char* key, const char* fallback) {
    const std::string name = Text(key, fallback);
    if (name == "gelu_new") return Activation::kGeluNew;
    if (name == "relu" || name == "tanh") return Activation::kFromResult;
    for (const char* fused : {"gelu", "gelu_pytorch_tanh", "silu"}) {
      if (name == fused) return Activation::kFused;
    }
    Wrong(key, name, "gelu, gelu_new, gelu_pytorch_tanh, relu, silu, tanh");
    return Activation::kFused;
  }

  void Wrong(const char* key, const std::string& value, const std::string& accepted) {
    if (status_.ok())
      status_ =
          absl::InvalidArgumentError(absl::StrCat(key, "=", value, " is invalid; expected: ", accepted));
  }
  const absl::Status& status() const { return status_; }

 private:
  nlohmann::json::const_iterator Find(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_null() ? json_.end() : found;
  }

  uint64_t Number(const char* key, const uint64_t* fallback) {
    const auto found = Find(key);
    if (found == json_.end() && fallback != nullptr) return *fallback;
    if (found == json_.end()) {
      if (status_.ok())
        status_ = absl::InvalidArgumentError(
            absl::StrCat(key,
                         " is missing; expected: a positive integer (transformers omits defaults: "
                         "write the file with config.to_json_file(path, use_diff=False))"));
      return 1;
    }
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 1 && value <= kMaxInteger && value == std::floor(value))) {
      Wrong(key, found->dump(), "a positive integer");
      return 1;
    }
    return static_cast<uint64_t>(value);
  }

  const nlohmann::json& json_;
  absl::Status status_ = absl::OkStatus();
};

uint64_t HeadWidth(Config* config, uint64_t width, uint64_t heads, const char* width_key,
                   const char* heads_key) {
  if (width % heads != 0)
    config->Wrong(width_key, absl::StrCat(width), absl::StrCat("a multiple of ", heads_key, " = ", heads));
  return std::max<uint64_t>(1, width / heads);
}

ModelShape ReadLlama(Config* config) {
  ModelShape shape;
  shape.family = Family::kLlama;
  shape.layers = config->Size("num_hidden_layers");
  shape.width = config->Size("hidden_size");
  shape.wide = config->Size("intermediate_size");
  shape.heads = config->Size("num_attention_heads");
  shape.key_heads = config->Size("num_key_value_heads", shape.heads);
  shape.head_width = config->Size("head_dim", 0);
  if (shape.head_width == 0)
    shape.head_width = HeadWidth(config, shape.width, shape.heads, "hidden_size", "num_attention_heads");
  shape.vocabulary = config->Size("vocab_size");
  shape.activation = config->Act("hidden_act", "silu");
  shape.gated = true;
  shape.tied = config->Flag("tie_word_embeddings", false);
  shape.attention_bias = config->Flag("attention_bias", false);
  shape.feed_forward_bias = config->Flag("mlp_bias", false);
  shape.attention_dropout = config->Dropout("attention_dropout", 0);
  return shape;
}

// Mistral has no biases, whatever the file has, and by default 8 heads for keys and a window of 4,096.
ModelShape ReadMistral(Config* config) {
  ModelShape shape = ReadLlama(config);
  shape.attention_bias = shape.feed_forward_bias = false;
  if (!config->Null("num_key_value_heads")) shape.key_heads = config->Size("num_key_value_heads", 8);
  if (!config->Null("sliding_window")) shape.window = config->Size("sliding_window", 4096);
  return shape;
}

ModelShape ReadGpt2(Config* config, bool many_queries) {
  ModelShape shape;
  shape.family = Family::kGpt2;
  shape.layers = config->Size("n_layer");
  shape.width = config->Size("n_embd");
  shape.wide = config->Size("n_inner", 4 * shape.width);
  shape.heads = config->Size("n_head");
  shape.key_heads = many_queries && config->Flag("multi_query", true) ? 1 : shape.heads;
  shape.head_width = HeadWidth(config, shape.width, shape.heads, "n_embd", "n_head");
  shape.vocabulary = config->Size("vocab_size");
  shape.positions = config->Size("n_positions", 1024);
  shape.activation = config->Act("activation_function", many_queries ? "gelu_pytorch_tanh" : "gelu_new");
  shape.tied = config->Flag("tie_word_embeddings", true);
  shape.attention_bias = shape.feed_forward_bias = true;
  shape.dropout = config->Dropout("resid_pdrop", 0.1);
  shape.embedding_dropout = config->Dropout("embd_pdrop", 0.1);
  shape.attention_dropout = config->Dropout("attn_pdrop", 0.1);
  return shape;
}

ModelShape ReadBert(Config* config) {
  ModelShape shape;
  shape.family = Family::kBert;
  shape.layers = config->Size("num_hidden_layers");
  shape.width = config->Size("hidden_size");
  shape.wide = config->Size("intermediate_size");
  shape.heads = shape.key_heads = config->Size("num_attention_heads");
  shape.head_width = HeadWidth(config, shape.width, shape.heads, "hidden_size", "num_attention_heads");
  shape.vocabulary = config->Size("vocab_size");
  shape.positions = config->Size("max_position_embeddings", 512);
  shape.token_types = config->Size("type_vocab_size", 2);
  shape.activation = config->Act("hidden_act", "gelu");
  shape.tied = config->Flag("tie_word_embeddings", true);
  shape.attention_bias = shape.feed_forward_bias = true;
  shape.dropout = shape.embedding_dropout = config->Dropout("hidden_dropout_prob", 0.1);
  shape.attention_dropout = config->Dropout("attention_probs_dropout_prob", 0.1);
  return shape;
}

ModelShape ReadT5(Config* config) {
  ModelShape shape;
  shape.family = Family::kT5;
  shape.layers = config->Size("num_layers");
  shape.decoder_layers = config->Size("num_decoder_layers", shape.layers);
  shape.width = config->Size("d_model");
  shape.wide = config->Size("d_ff");
  shape.heads = shape.key_heads = config->Size("num_heads");
  shape.head_width = config->Size("d_kv");
  shape.vocabulary = config->Size("vocab_size");
  shape.buckets = config->Size("relative_attention_num_buckets", 32);
  const std::string form = config->Text("feed_forward_proj", "relu");
  shape.gated = absl::StartsWith(form, "gated-");
  if (form == "gated-gelu" || form == "gelu_new") {
    shape.activation = Activation::kGeluNew;  // T5Config takes gated-gelu for gelu_new
  } else if (form == "relu" || form == "gated-relu") {
    shape.activation = Activation::kFromResult;
  } else if (form != "gelu" && form != "gated-silu") {
    config->Wrong("feed_forward_proj", form, "relu, gelu, gelu_new, gated-gelu, gated-relu, gated-silu");
  }
  // T5Config always ties, and takes an untied file for one whose head gets unscaled input.
  shape.tied = true;
  const bool scaled = config->Flag("tie_word_embeddings", true);
  shape.scaled_head = config->Flag("scale_decoder_outputs", scaled);
  shape.dropout = shape.attention_dropout = config->Dropout("dropout_rate", 0.1);
  shape.embedding_dropout = shape.dropout;
  return shape;
}

}  // namespace

absl::StatusOr<ModelShape> ParseModelConfig(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return absl::InvalidArgumentError("no JSON object; expected: a Hugging Face config.json");
  Config config(json);
  const std::string family = config.Text("model_type", "");
  ModelShape shape;
  if (family == "llama" || family == "granite") {
    shape = ReadLlama(&config);
    shape.scaled_residual = family == "granite";
  } else if (family == "mistral") {
    shape = ReadMistral(&config);
  } else if (family == "gpt2" || family == "gpt_bigcode") {
    shape = ReadGpt2(&config, family == "gpt_bigcode");
  } else if (family == "bert") {
    shape = ReadBert(&config);
  } else if (family == "t5") {
    shape = ReadT5(&config);
  } else {
    config.Wrong("model_type", family.empty() ? "(missing)" : family, kFamilies);
  }
  if (!config.status().ok()) return config.status();
  if (absl::Status status = policy::CheckShape(shape); !status.ok()) return status;
  return shape;
}

}  // namespace spillway::integration
