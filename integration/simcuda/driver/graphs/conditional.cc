#include "integration/simcuda/driver/graphs/conditional.h"

#include <map>
#include <mutex>

#include "integration/simcuda/driver/execution/context.h"

namespace simcuda {
namespace {

struct Condition {
  unsigned int value = 0;
  unsigned int first = 0;  // at each launch
  bool assign = false;
};

struct ConditionTable {
  std::mutex mutex;  // guards the rest
  uint64_t last = 0;
  std::map<uint64_t, Condition> conditions;
};
ConditionTable& GetConditionTable() {
  static auto* table = new ConditionTable;
  return *table;
}

using Lock = std::lock_guard<std::mutex>;

unsigned int ValueOf(uint64_t handle) {
  const Lock lock(GetConditionTable().mutex);
  return GetConditionTable().conditions[handle].value;
}

void AssignFirst(uint64_t handle) {
  const Lock lock(GetConditionTable().mutex);
  Condition& condition = GetConditionTable().conditions[handle];
  if (condition.assign) condition.value = condition.first;
}

using Bodies = std::vector<std::vector<OperationPtr>>;

class ConditionalRun : public Operation {
 public:
  ConditionalRun(const ConditionalOperation& node, Bodies bodies)
      : condition_(node.condition()), kind_(node.kind()), bodies_(std::move(bodies)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  CUresult Submit(Stream& stream) const override;
  // On the thread of the node's stream.
  void Run(Stream& stream) const;

 private:
  // The body to run next; null: none.
  const std::vector<OperationPtr>* Next() const;

  const uint64_t condition_;
  const CUgraphConditionalNodeType kind_;
  const Bodies bodies_;
};

class ConditionalWork : public Work {
 public:
  explicit ConditionalWork(std::shared_ptr<const ConditionalRun> run) : run_(std::move(run)) {}
  void Run(Stream& stream, bool skip) override {
    if (!skip) run_->Run(stream);
  }
  const char* name() const override { return "conditional node"; }

 private:
  const std::shared_ptr<const ConditionalRun> run_;
};

class ResetWork : public Work {
 public:
  explicit ResetWork(std::vector<uint64_t> conditions) : conditions_(std::move(conditions)) {}
  void Run(Stream&, bool) override {
    for (const uint64_t condition : conditions_) AssignFirst(condition);
  }
  const char* name() const override { return "first values of conditions"; }
  bool is_operation() const override { return false; }

 private:
  const std::vector<uint64_t> conditions_;
};

class ResetOperation : public Operation {
 public:
  explicit ResetOperation(std::vector<uint64_t> conditions) : conditions_(std::move(conditions)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUresult Submit(Stream& stream) const override {
    stream.context()->Enqueue(stream, new ResetWork(conditions_));
    return CUDA_SUCCESS;
  }

 private:
  const std::vector<uint64_t> conditions_;
};

CUresult ConditionalRun::Submit(Stream& stream) const {
  stream.context()->Enqueue(
      stream, new ConditionalWork(std::static_pointer_cast<const ConditionalRun>(shared_from_this())));
  return CUDA_SUCCESS;
}

const std::vector<OperationPtr>* ConditionalRun::Next() const {
  const unsigned int value = ValueOf(condition_);
  size_t body = value;  // a switch
  if (kind_ == CU_GRAPH_COND_TYPE_IF) body = value != 0 ? 0 : 1;
  if (kind_ == CU_GRAPH_COND_TYPE_WHILE) body = value != 0 ? 0 : bodies_.size();
  return body < bodies_.size() ? &bodies_[body] : nullptr;
}

void ConditionalRun::Run(Stream& stream) const {
  Context* const context = stream.context();
  Stream* const own = context->OpenStream(StreamKind::kNonBlocking, 0);
  while (const std::vector<OperationPtr>* const body = Next()) {
    for (const OperationPtr& operation : *body) {
      if (operation->Submit(*own) != CUDA_SUCCESS) break;
    }
    own->WaitFor(own->enqueued());
    if (kind_ != CU_GRAPH_COND_TYPE_WHILE || context->status() != CUDA_SUCCESS) break;
  }
  context->CloseStream(own);
}

}  // namespace

uint64_t MakeCondition(unsigned int value, bool assign) {
  const Lock lock(GetConditionTable().mutex);
  const uint64_t handle = ++GetConditionTable().last;
  GetConditionTable().conditions[handle] = {assign ? value : 0, value, assign};
  return handle;
}

bool IsCondition(uint64_t handle) {
  const Lock lock(GetConditionTable().mutex);
  return GetConditionTable().conditions.count(handle) != 0;
}

bool SetCondition(uint64_t handle, unsigned int value) {
  const Lock lock(GetConditionTable().mutex);
  const auto found = GetConditionTable().conditions.find(handle);
  if (found == GetConditionTable().conditions.end()) return false;
  found->second.value = value;
  return true;
}

OperationPtr MakeConditionReset(std::vector<uint64_t> conditions) {
  return std::make_shared<ResetOperation>(std::move(conditions));
}

OperationPtr MakeConditionalRun(const ConditionalOperation& node, Bodies bodies) {
  return std::make_shared<ConditionalRun>(node, std::move(bodies));
}

}  // namespace simcuda

extern "C" __attribute__((visibility("default"))) int simcuda_set_condition(uint64_t handle,
                                                                            unsigned int value) {
  return simcuda::SetCondition(handle, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
