// A C++ program against the wheel's libtorch: trains a residual network on cuda and writes its losses and its final
// state as plain bytes. It knows nothing of Spillway, which comes by LD_PRELOAD.
//   libtorch_job OUTPUT_FOLDER STEPS LAYERS
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

namespace {

constexpr int64_t kWidth = 1024;
constexpr int64_t kBatch = 512;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 2 * kWidth));
    down = register_module("down", torch::nn::Linear(2 * kWidth, kWidth));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }

  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

void Write(std::ofstream* file, const torch::Tensor& tensor) {
  const torch::Tensor host = tensor.detach().to(torch::kCPU).contiguous();
  file->write(static_cast<const char*>(host.data_ptr()), static_cast<std::streamsize>(host.nbytes()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: libtorch_job OUTPUT_FOLDER STEPS LAYERS\n";
    return 2;
  }
  const std::string folder = argv[1];
  try {
    torch::manual_seed(1);
    torch::nn::Sequential model;
    for (int i = std::atoi(argv[3]); i > 0; --i) model->push_back(Block());
    model->to(torch::kCUDA);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
    std::ofstream losses(folder + "/losses.0.txt");
    for (int step = 1; step <= std::atoi(argv[2]); ++step) {
      const torch::Tensor inputs = torch::randn({kBatch, kWidth}, torch::kCUDA);
      const torch::Tensor loss = torch::mse_loss(model->forward(inputs), inputs.roll(1, 1));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      char text[64];
      std::snprintf(text, sizeof(text), "%a", loss.item<double>());
      losses << text << '\n';
      std::cout << "step " << step << " loss " << loss.item<double>() << std::endl;
    }
    std::ofstream state(folder + "/state.0.bin", std::ios::binary);
    for (const torch::Tensor& parameter : model->parameters()) {
      Write(&state, parameter);
      const auto& moments = static_cast<const torch::optim::AdamWParamState&>(
          *optimizer.state().at(parameter.unsafeGetTensorImpl()));
      Write(&state, moments.exp_avg());
      Write(&state, moments.exp_avg_sq());
    }
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    std::ofstream(folder + "/memory.0.json")
        << "[{\"reserved_bytes.all.peak\": " << stats.reserved_bytes[0].peak
        << ", \"allocated_bytes.all.peak\": " << stats.allocated_bytes[0].peak
        << ", \"allocated_bytes.large_pool.peak\": " << stats.allocated_bytes[2].peak << "}]\n";
  } catch (const c10::Error& error) {
    std::cerr << (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ? "OutOfMemoryError: " : "")
              << error.what() << std::endl;
    return 1;
  }
  return 0;
}
