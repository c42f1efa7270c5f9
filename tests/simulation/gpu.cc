#include "tests/simulation/gpu.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator/driver/content_hash.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

constexpr uint64_t kUntouched = 0xdeadbeefdeadbeef;
constexpr uint64_t kDeviceBase = uint64_t{1} << 44;

}  // namespace

// ---- Memory.

uint64_t* Gpu::Words(CUdeviceptr address) {
  const auto page = pages_.find(address / options_.chunk_bytes);
  if (page == pages_.end() || !page->second.access) {
    scheduler().Fail("the GPU touches " + std::to_string(address) + ", which is not mapped");
  }
  return page->second.chunk->data() + (page->second.at + address % options_.chunk_bytes) / 8;
}

bool Gpu::IsMapped(CUdeviceptr address) const {
  const auto page = pages_.find(address / options_.chunk_bytes);
  return page != pages_.end() && page->second.access;
}

void Gpu::Forget(Chunk* chunk) {
  if (!chunk->released || chunk->maps > 0) return;
  for (auto it = chunks_.begin(); it != chunks_.end(); ++it) {
    if (it->second.get() != chunk) continue;
    chunks_.erase(it);
    return;
  }
}

Gpu::Kernel Gpu::CopyOf(std::byte* host, CUdeviceptr address, uint64_t bytes, bool out) {
  return [host, address, bytes, out](Gpu* gpu) {
    // In halves of a chunk: a write of another task in between tears it.
    const uint64_t step = gpu->options_.chunk_bytes / 2;
    for (uint64_t at = 0; at < bytes; at += step) {
      if (at > 0) gpu->Pause();
      uint64_t* const words = gpu->Words(address + at);
      const uint64_t part = std::min(step, bytes - at);
      if (out) {
        std::memcpy(host + at, words, part);
      } else {
        std::memcpy(words, host + at, part);
      }
    }
  };
}

Gpu::Kernel Gpu::HashOf(CUdeviceptr address, uint64_t vectors, uint64_t* partials, unsigned count) {
  return [address, vectors, partials, count](Gpu* gpu) {
    const uint64_t bytes = vectors * allocator::content_hash::kVectorBytes;
    allocator::ContentHash sum;
    if (address < kDeviceBase || address >= gpu->next_base_) {
      sum = allocator::HashOf(reinterpret_cast<const void*>(address), bytes);
    } else {
      std::vector<uint64_t> words(bytes / 8);
      for (uint64_t at = 0; at < bytes; at += gpu->options_.chunk_bytes) {
        if (at > 0) gpu->Pause();
        std::memcpy(words.data() + at / 8, gpu->Words(address + at),
                    std::min(gpu->options_.chunk_bytes, bytes - at));
      }
      sum = allocator::HashOf(words.data(), bytes);
    }
    for (unsigned i = 0; i < 2 * count; ++i) partials[i] = 0;
    partials[0] = sum.low;
    partials[1] = sum.high;
  };
}

// ---- Streams.

CUstream Gpu::NewStream() {
  streams_.push_back(std::make_unique<Stream>());
  Stream* const stream = streams_.back().get();
  scheduler().Start("stream " + std::to_string(streams_.size()), TaskKind::kBackground,
                    [this, stream] { StreamLoop(stream); });
  return reinterpret_cast<CUstream>(stream);
}

Gpu::Stream* Gpu::StreamOf(CUstream handle) {
  if (handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    return reinterpret_cast<Stream*>(handle);
  }
  if (legacy_ == nullptr) legacy_ = reinterpret_cast<Stream*>(NewStream());
  return legacy_;
}

void Gpu::Notify(const void* what) {
  for (Task* task : scheduler().Alive()) {
    if (task->state == Task::State::kBlocked && task->waits_on == what) scheduler().Unblock(task);
  }
}

void Gpu::Add(Stream* stream, Operation operation) {
  stream->operations.push_back(std::move(operation));
  ++stream->enqueued;
  Notify(stream);
}

CUresult Gpu::Enqueue(CUstream stream, Kernel body) {
  if (error_ != CUDA_SUCCESS) return error_;
  Add(StreamOf(stream), {std::move(body), nullptr, false});
  return CUDA_SUCCESS;
}

void Gpu::Pause() { scheduler().SwitchPoint(); }

void Gpu::StreamLoop(Stream* stream) {
  while (true) {
    while (stream->operations.empty()) scheduler().Block("work of the GPU", stream);
    scheduler().SwitchPoint();
    Operation& operation = stream->operations.front();
    if (options_.slow_one_in > 0 && operation.body && random_->OneIn(options_.slow_one_in)) {
      scheduler().SleepUntil(scheduler().now() + (int64_t{1'000} << random_->Below(12)));
    }
    if (operation.wait) {
      while (!operation.record->done && error_ == CUDA_SUCCESS) {
        scheduler().Block("an event on the GPU", operation.record.get());
      }
    } else if (operation.body && error_ == CUDA_SUCCESS) {
      operation.body(this);
      ++operations_;
    }
    if (!operation.wait && operation.record != nullptr) {
      operation.record->done = true;
      Notify(operation.record.get());
    }
    stream->operations.pop_front();
    ++stream->completed;
    scheduler().RecordProgress();
    Notify(&stream->completed);
  }
}

void Gpu::Synchronize(CUstream handle) {
  Stream* const stream = StreamOf(handle);
  const uint64_t goal = stream->enqueued;
  while (stream->completed < goal && error_ == CUDA_SUCCESS) {
    scheduler().Block("a stream", &stream->completed);
  }
}

void Gpu::Poison(CUresult error) {
  error_ = error;
  for (const auto& event : events_) {
    if (event->last != nullptr) Notify(event->last.get());
  }
  for (const auto& stream : streams_) Notify(&stream->completed);
}

CUresult Gpu::Call() const {
  scheduler().SwitchPoint();
  if (error_ == CUDA_SUCCESS) scheduler().RecordEffect();
  return error_;
}

}  // namespace spillway::simulation
