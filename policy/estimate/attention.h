// Attention: PyTorch's scaled_dot_product_attention as blocks and launches, in its two forms: one fused
// kernel that keeps no scores (flash; the memory-efficient form takes as much), or products written out with
// the matrix of scores (math). Also decides which form transformers 5.23 and PyTorch 2.11 choose. Pure; one
// thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_ATTENTION_H_
#define SPILLWAY_POLICY_ESTIMATE_ATTENTION_H_

#include <cstdint>

#include "policy/estimate/operators.h"

namespace spillway::policy {

enum class AttentionForm : uint8_t {
  kSdpa,   // PyTorch's choice: one kernel if one serves the job
  kFlash,  // always one kernel, which handles windows and heads that share keys itself
  kMath,
};

struct AttentionShape {
  uint64_t batch = 0, queries = 0, keys = 0;  // sequences, and their tokens
  uint64_t heads = 0, key_heads = 0, head_width = 0;
  bool causal = false, dropout = false;
  AttentionForm form = AttentionForm::kSdpa;
};

// Takes queries, keys and values that are views of (batch, tokens, heads, head_width) with heads and tokens
// exchanged. `bias` may have no tensor; it is added to the scores of each sequence. A bias of bools, of
// (queries, keys), is a mask: numbers are made of it for each sequence. A bias already contains what is
// causal. The result is in the order of the queries' tokens.
Variable Attention(Operators* operators, Variable q, Variable k, Variable v, const Variable& bias,
                   const AttentionShape& shape);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_ATTENTION_H_
