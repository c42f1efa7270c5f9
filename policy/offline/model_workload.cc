#include "policy/offline/model_workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "policy/estimate/model_shape.h"

namespace spillway::policy {
namespace {

constexpr Bytes kUnit = 4096;                // sizes are multiples of it
constexpr double kMinSeconds = 2e-6;         // of a kernel
constexpr uint64_t kMaxKernels = 5'000'000;  // more is taken for a mistake
constexpr uint32_t kKernelsOfLayer = 50;     // at most, forward, backward and update together

struct Matrix {
  uint64_t rows = 0, columns = 0;  // of this GPU's share
  uint32_t weight = 0, gradient = 0;
  std::vector<uint32_t> state;
  bool fresh = true;  // the gradient is overwritten by the first micro-batch, then added to
};

struct Layer {
  Matrix q, k, v, o, gate, up, down;
};

// The tensors that a layer's backward pass reads again.
struct Kept {
  uint32_t x, n1, q, k, v, a, r1, n2, g, u, s;
};

class TrainingIteration {
 public:
  TrainingIteration(const ModelOptions& options, const ModelShape& shape)
      : options_(options),
        shape_(shape),
        number_(options.precision == ModelPrecision::kFp32 ? 4 : 2),
        tokens_(uint64_t{options.batch} * options.sequence) {}

  Workload Make() {
    const uint64_t share = options_.tensor_parallel;
    const uint64_t width = shape_.width, wide = shape_.wide / share;
    const uint64_t narrow = shape_.key_heads * shape_.head_width / share;
    const uint64_t layers = options_.layers == 0 ? shape_.layers : options_.layers;
    if (!shape_.tied) embedding_ = NewMatrix(width, shape_.vocabulary / share);
    for (uint64_t l = 0; l < layers; ++l) {
      layers_.push_back({NewMatrix(width, width / share), NewMatrix(width, narrow), NewMatrix(width, narrow),
                         NewMatrix(width / share, width), NewMatrix(width, wide), NewMatrix(width, wide),
                         NewMatrix(wide, width)});
    }
    head_ = NewMatrix(width, shape_.vocabulary / share);
    for (uint32_t m = 0; m < options_.micro_batches; ++m) PassOnce();
    for (Layer& layer : layers_) {
      for (Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        Update(*matrix);
    }
    if (!shape_.tied) Update(embedding_);
    Update(head_);
    return std::move(workload_);
  }

 private:
  uint32_t NewTensor(uint64_t bytes, bool persistent) {
    workload_.tensors.push_back({std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit), persistent});
    return static_cast<uint32_t>(workload_.tensors.size() - 1);
  }
  uint32_t NewActivation(uint64_t width) { return NewTensor(tokens_ * width * number_, false); }
  Matrix NewMatrix(uint64_t rows, uint64_t columns) {
    Matrix matrix{
        rows, columns, NewTensor(rows * columns * number_, true), NewTensor(rows * columns * number_, true),
        {},   true};
    const int states = options_.precision == ModelPrecision::kFp32 ? 2 : 3;
    for (int s = 0; s < states; ++s) matrix.state.push_back(NewTensor(rows * columns * 4, true));
    return matrix;
  }

  void Kernel(const char* name, std::vector<uint32_t> inputs, std::vector<uint32_t> outputs,
              double operations = 0) {
    double moved = 0;
    for (auto* ids : {&inputs, &outputs}) {
      for (uint32_t t : *ids) moved += static_cast<double>(workload_.tensors[t].bytes);
      std::sort(ids->begin(), ids->end());
      ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
    }
    const double seconds = std::max({operations / options_.flops, moved / options_.bandwidth, kMinSeconds});
    workload_.kernels.push_back(
        {name, static_cast<Nanos>(std::llround(seconds * 1e9)), std::move(inputs), std::move(outputs), 0});
  }

  double Operations(const Matrix& matrix) const {
    return 2.0 * static_cast<double>(tokens_) * static_cast<double>(matrix.rows * matrix.columns);
  }
  uint32_t Forward(const Matrix& matrix, uint32_t x) {
    const uint32_t y = NewActivation(matrix.columns);
    Kernel("MatMul_Forward", {x, matrix.weight}, {y}, Operations(matrix));
    return y;
  }
  uint32_t Backward(Matrix* matrix, uint32_t x, uint32_t dy) {
    const uint32_t dx = NewActivation(matrix->rows);
    Kernel("MatMul_BackwardData", {dy, matrix->weight}, {dx}, Operations(*matrix));
    Accumulate("MatMul_BackwardWeight", matrix, {x, dy}, Operations(*matrix));
    return dx;
  }
  void Accumulate(const char* name, Matrix* matrix, std::vector<uint32_t> inputs, double operations) {
    if (!matrix->fresh) inputs.push_back(matrix->gradient);
    matrix->fresh = false;
    Kernel(name, std::move(inputs), {matrix->gradient}, operations);
  }
  void Update(const Matrix& matrix) {
    std::vector<uint32_t> inputs = matrix.state, outputs = matrix.state;
    inputs.push_back(matrix.gradient);
    if (options_.precision == ModelPrecision::kFp32) inputs.push_back(matrix.weight);
    outputs.push_back(matrix.weight);
    Kernel("AdamW", std::move(inputs), std::move(outputs));
  }
  uint32_t Pointwise(const char* name, std::vector<uint32_t> inputs, uint64_t width) {
    const uint32_t y = NewActivation(width);
    Kernel(name, std::move(inputs), {y});
    return y;
  }

  double AttentionOperations(const Layer& layer) const {
    return 2.0 * static_cast<double>(tokens_) * options_.sequence * static_cast<double>(layer.q.columns);
  }
  uint32_t ForwardLayer(const Layer& layer, uint32_t x, Kept* kept) {
    const uint32_t n1 = Pointwise("Norm_Forward", {x}, shape_.width);
    const uint32_t q = Forward(layer.q, n1), k = Forward(layer.k, n1), v = Forward(layer.v, n1);
    const uint32_t a = NewActivation(layer.q.columns);
    Kernel("Attention_Forward", {q, k, v}, {a}, AttentionOperations(layer));
    const uint32_t o = Forward(layer.o, a);
    const uint32_t r1 = Pointwise("Add_Forward", {x, o}, shape_.width);
    const uint32_t n2 = Pointwise("Norm_Forward", {r1}, shape_.width);
    const uint32_t g = Forward(layer.gate, n2), u = Forward(layer.up, n2);
    const uint32_t s = Pointwise("SiluMul_Forward", {g, u}, layer.gate.columns);
    const uint32_t d = Forward(layer.down, s);
    *kept = {x, n1, q, k, v, a, r1, n2, g, u, s};
    return Pointwise("Add_Forward", {r1, d}, shape_.width);
  }
  uint32_t BackwardLayer(Layer* layer, const Kept& kept, uint32_t dy) {
    const uint32_t ds = Backward(&layer->down, kept.s, dy);
    const uint32_t dg = Pointwise("SiluMul_Backward", {ds, kept.g, kept.u}, layer->gate.columns);
    const uint32_t du = Pointwise("SiluMul_Backward", {ds, kept.g, kept.u}, layer->gate.columns);
    const uint32_t dn2g = Backward(&layer->gate, kept.n2, dg);
    const uint32_t dn2u = Backward(&layer->up, kept.n2, du);
    const uint32_t dr1 = Pointwise("Norm_Backward", {kept.r1, dy, dn2g, dn2u}, shape_.width);
    const uint32_t da = Backward(&layer->o, kept.a, dr1);
    const uint32_t dq = NewActivation(layer->q.columns), dk = NewActivation(layer->k.columns),
                   dv = NewActivation(layer->v.columns);
    Kernel("Attention_Backward", {kept.q, kept.k, kept.v, kept.a, da}, {dq, dk, dv},
           2.5 * AttentionOperations(*layer));
    const uint32_t d1 = Backward(&layer->q, kept.n1, dq), d2 = Backward(&layer->k, kept.n1, dk),
                   d3 = Backward(&layer->v, kept.n1, dv);
    return Pointwise("Norm_Backward", {kept.x, dr1, d1, d2, d3}, shape_.width);
  }

  // Runs forward and backward of one micro-batch.
  void PassOnce() {
    Matrix* const embedding = shape_.tied ? &head_ : &embedding_;
    uint32_t x = Pointwise("Embedding_Forward", {embedding->weight}, shape_.width);
    std::vector<Kept> kept(layers_.size());
    for (size_t l = 0; l < layers_.size(); ++l) x = ForwardLayer(layers_[l], x, &kept[l]);
    const uint32_t logits = Forward(head_, x);
    const uint32_t slopes = Pointwise("CrossEntropy", {logits}, head_.columns);
    uint32_t dy = Backward(&head_, x, slopes);
    for (size_t l = layers_.size(); l-- > 0;) dy = BackwardLayer(&layers_[l], kept[l], dy);
    Accumulate("Embedding_Backward", embedding, {dy}, 0);
  }

  const ModelOptions& options_;
  const ModelShape shape_;
  const uint64_t number_;  // bytes of a weight, a gradient, an activation
  const uint64_t tokens_;
  Workload workload_;
  Matrix embedding_, head_;
  std::vector<Layer> layers_;
};

absl::Status NotAccepted(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("'", text,
                                                 "' is invalid for a model; expected: layers, batch, "
                                                 "sequence, micro_batches, tensor_parallel (a power of "
                                                 "two, 8 at most), precision=bf16|fp32, tflops, bandwidth"));
}

bool SetOption(absl::string_view name, absl::string_view value, ModelOptions* options) {
  if (name == "precision") {
    options->precision = value == "fp32" ? ModelPrecision::kFp32 : ModelPrecision::kBf16;
    return value == "fp32" || value == "bf16";
  }
  if (name == "tflops" || name == "bandwidth") {
    double number = 0;
    const bool good = absl::SimpleAtod(value, &number) && number > 1e-6 && number < 1e18;
    (name == "tflops" ? options->flops : options->bandwidth) = name == "tflops" ? number * 1e12 : number;
    return good;
  }
  uint32_t* const number = name == "layers"            ? &options->layers
                           : name == "batch"           ? &options->batch
                           : name == "sequence"        ? &options->sequence
                           : name == "micro_batches"   ? &options->micro_batches
                           : name == "tensor_parallel" ? &options->tensor_parallel
                                                       : nullptr;
  return number != nullptr && absl::SimpleAtoi(value, number) && *number > 0 && *number <= 1'000'000;
}

}  // namespace

std::string ModelNames() { return ShapeNames(Family::kLlama); }

absl::StatusOr<ModelOptions> ParseModel(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const absl::StatusOr<ModelShape> shape = NamedShape(parts.first);
  if (!shape.ok() || shape->family != Family::kLlama)
    return absl::NotFoundError(absl::StrCat("'", parts.first, "' is no model; there are ", ModelNames()));
  ModelOptions options;
  options.model = std::string(parts.first);
  for (absl::string_view setting : absl::StrSplit(parts.second, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(setting, absl::MaxSplits('=', 1));
    if (!SetOption(sides.first, sides.second, &options)) return NotAccepted(setting);
  }
  const uint32_t share = options.tensor_parallel;
  if (share > 8 || (share & (share - 1)) != 0) return NotAccepted(absl::StrCat("tensor_parallel=", share));
  const uint64_t layers = options.layers == 0 ? shape->layers : options.layers;
  if ((layers + 1) * kKernelsOfLayer * options.micro_batches > kMaxKernels ||
      uint64_t{options.batch} * options.sequence > (uint64_t{1} << 32))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large for a trace"));
  return options;
}

Workload MakeModelWorkload(const ModelOptions& options) {
  return TrainingIteration(options, *NamedShape(options.model)).Make();
}

}  // namespace spillway::policy
