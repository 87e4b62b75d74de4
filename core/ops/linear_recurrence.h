// SPDX-License-Identifier: Apache-2.0
// Linear recurrences over a matrix for each head, with decay and the delta rule: linear attention
// (Katharopoulos et al., 2020), RetNet (Sun et al., 2023), Mamba-2 (Dao and Gu, 2024) and Gated
// DeltaNet (Yang et al., 2024). Computed in chunks of the sequence, within which all is products.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

struct LinearRecurrenceOptions {
  bool delta = true;   // Whether a key's earlier value is subtracted first (the delta rule).
  Tensor segment_ids;  // i32["batch seq"], equal ids adjacent: each segment starts from zero.
  Tensor state;        // ["batch heads key_dim value_dim"] before the first token; invalid: zeros.
};

struct LinearRecurrence {
  Tensor out;    // ["batch seq heads value_dim"]
  Tensor state;  // ["batch heads key_dim value_dim"] after the last token.
};

// q and k["batch seq heads key_dim"], v["batch seq heads value_dim"], and log_decay (at most 0) and
// beta["batch seq heads"], for which f32 is right also beside q, k and v in bf16. For each head,
// with S from zeros or options.state:
//
//   S = exp(log_decay_t)·S
//   S = S + k_t (beta_t·(v_t - S^T k_t))^T     without delta: S + k_t (beta_t·v_t)^T
//   out_t = S^T q_t
//
// The axes must have these names and this order, else Error; seq, key_dim and value_dim may not be
// split. Computed in f32 (f64 in f64).
LinearRecurrence linear_recurrence(Operand q, Operand k, Operand v, Operand log_decay, Operand beta,
                                   const LinearRecurrenceOptions& options = {});

// The positions of the operands of linear_recurrence and of its gradient, and of the results of
// the gradient: the cotangents of query to beta, and of the state if there is one.
struct RecurrenceOperands {
  enum : size_t { kQuery, kKey, kValue, kLogDecay, kBeta };
  explicit RecurrenceOperands(const Attributes& attributes);

  bool delta;
  bool has_segments, has_state;  // Whether these operands exist.
  bool has_final;                // The cotangent of the last state, in the gradient.
  size_t segments, state, out_cotangent, final_cotangent;
};

// A chunk of the decomposition and of kernels has at most this many tokens.
inline constexpr int64_t kRecurrenceChunk = 64;

extern const Op kLinearRecurrenceOp, kLinearRecurrenceGradOp;

}  // namespace tessera
