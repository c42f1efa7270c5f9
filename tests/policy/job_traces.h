// Traces of a training iteration as the recorder sees one: weights, saved activations, gradients, and an
// optimizer with two states per weight. For tests of what is planned from recordings.

#ifndef SPILLWAY_TESTS_POLICY_JOB_TRACES_H_
#define SPILLWAY_TESTS_POLICY_JOB_TRACES_H_

#include <vector>

#include "policy/trace/kernel_times.h"
#include "policy/trace/recorded_workload.h"
#include "policy/trace/trace.h"
#include "policy/trace/write_facts.h"

namespace spillway::policy {

struct TrainingJob {
  uint32_t layers = 12;
  uint32_t launches = 4;  // a layer's forward and backward are so many each
  Bytes weight = 8 << 20, activation = 16 << 20, temporary = 4 << 20;
  Nanos forward = 1'000'000, backward = 2'000'000, update = 500'000;  // a launch
  bool gradients_kept =
      false;  // freed by the next iteration's beginning, as zero_grad there does; else by the update

  uint32_t IterationLaunches() const { return layers * (2 * launches + 1); }

  // `iterations` of them, of which the last is incomplete: it lacks `less` launches.
  Trace Record(uint32_t iterations, uint32_t less = 0) const {
    Trace trace;
    Writer writer{this, &trace, uint64_t{iterations} * IterationLaunches() - less};
    for (uint32_t i = 0; i < iterations; ++i) writer.Iteration(i);
    return trace;
  }
  BlockSizes Sizes() const {
    BlockSizes sizes;
    for (uint32_t l = 0; l < layers; ++l) {
      for (uint32_t kind = 0; kind < 3; ++kind) sizes[Persistent(l, kind)] = weight;
      sizes[Gradient(l)] = weight;
      sizes[Activation(l)] = activation;
    }
    sizes[Temporary(0)] = sizes[Temporary(1)] = temporary;
    return sizes;
  }
  KernelTimes Times() const {
    KernelTimes times;
    const BlockSizes sizes = Sizes();
    const Trace trace = Record(1);
    for (LaunchIndex i = 0; i < trace.end(); ++i) {
      std::vector<Bytes> bytes;
      for (const TraceBlock block : trace.at(i).blocks) bytes.push_back(sizes.at(block));
      const uint64_t tag = trace.at(i).tag;
      times.Add({KindOf(tag, bytes)}, tag >= kUpdate ? update : tag >= kBackward ? backward : forward);
    }
    return times;
  }
  // The blocks that are only read: weights and activations before their own layer's writing launch, gradients
  // in the update.
  WriteFacts Facts() const {
    WriteFacts facts;
    for (uint32_t look = 0; look < WriteFacts::kSamplesForNo; ++look) {
      for (uint32_t i = 0; i < launches; ++i) {
        for (const uint32_t blocks : {3u, 4u}) {
          facts.Record({kForward + i, blocks}, 0, false);
          facts.Record({kForward + i, blocks}, 1, i + 1 == launches);
          facts.Record({kBackward + i, blocks}, 0, false);
          facts.Record({kBackward + i, blocks}, 1, false);
        }
      }
      facts.Record({kUpdate, 4}, 1, false);
    }
    return facts;
  }
  // The iteration that ends `less` launches before the trace does.
  RecordedWorkload Recorded(uint32_t less = 0, bool facts = true) const {
    const Trace trace = Record(3, less);
    const KernelTimes times = Times();
    const WriteFacts known = Facts();
    return MakeRecordedWorkload(trace, trace.end() - IterationLaunches(), IterationLaunches(), Sizes(),
                                &times, facts ? &known : nullptr);
  }

 private:
  static constexpr uint64_t kForward = 1000, kBackward = 2000, kUpdate = 3000;
  static TraceBlock Persistent(uint32_t layer, uint32_t kind) { return 10 * layer + kind + 100; }
  static TraceBlock Gradient(uint32_t layer) { return 10 * layer + 103; }
  static TraceBlock Activation(uint32_t layer) { return 10 * layer + 104; }
  static TraceBlock Temporary(uint32_t which) { return 1 + which; }

  struct Writer {
    const TrainingJob* job;
    Trace* trace;
    uint64_t end;

    void Launch(uint64_t tag, const std::vector<TraceBlock>& blocks) {
      if (trace->end() < end) trace->AddLaunch(tag, blocks);
    }
    void Allocate(TraceBlock block, Bytes bytes) {
      if (trace->end() < end) trace->AddAllocate(block, bytes);
    }
    void Free(TraceBlock block) {
      if (trace->end() < end) trace->AddFree(block);
    }
    void Iteration(uint32_t index) {
      if (job->gradients_kept && index > 0) FreeGradients();
      for (uint32_t l = 0; l < job->layers; ++l) Forward(l);
      for (uint32_t l = job->layers; l-- > 0;) Backward(l);
      for (uint32_t l = 0; l < job->layers; ++l) {
        Launch(kUpdate, {Persistent(l, 0), Gradient(l), Persistent(l, 1), Persistent(l, 2)});
        if (!job->gradients_kept) Free(Gradient(l));
      }
    }
    void FreeGradients() {
      for (uint32_t l = 0; l < job->layers; ++l) Free(Gradient(l));
    }
    void Forward(uint32_t l) {
      Allocate(Activation(l), job->activation);
      Allocate(Temporary(0), job->temporary);
      for (uint32_t i = 0; i < job->launches; ++i) {
        std::vector<TraceBlock> blocks = {Persistent(l, 0), Activation(l), Temporary(0)};
        if (i == 0 && l > 0) blocks.push_back(Activation(l - 1));
        Launch(kForward + i, blocks);
      }
      Free(Temporary(0));
    }
    void Backward(uint32_t l) {
      Allocate(Temporary(1), job->temporary);
      Allocate(Gradient(l), job->weight);
      for (uint32_t i = 0; i < job->launches; ++i) {
        std::vector<TraceBlock> blocks = {Persistent(l, 0), Activation(l), Temporary(1)};
        if (i + 1 == job->launches) blocks.push_back(Gradient(l));
        Launch(kBackward + i, blocks);
      }
      Free(Temporary(1));
      Free(Activation(l));
    }
  };
};

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_JOB_TRACES_H_
