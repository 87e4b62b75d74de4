// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in linear_recurrence.cu.
#pragma once

#include <cstdint>

namespace tessera::cuda {

inline constexpr int kRecurrenceHeld = 32;  // Elements of a line of the state in a thread.
inline constexpr int kRecurrenceThreads = 128;
inline constexpr int kRecurrenceLanes = 16;  // The most threads of a line.
inline constexpr int kRecurrenceWidest = kRecurrenceHeld * kRecurrenceLanes;  // The longest line.
inline constexpr int kRecurrenceLines = 32;   // The most lines of a block.
inline constexpr int kRecurrenceTokens = 16;  // The most tokens in shared memory.
inline constexpr int kRecurrenceParts = 64;   // The most tokens there, times threads of a line.

// A line is what a kernel computes independently: a column of the state ["key_dim value_dim"], with
// `inner` key_dim, or a row, with `inner` value_dim. A block has `lines` of the `outer` lines of a
// head, each with `lanes` threads; `groups` blocks have them all.
struct RecurrenceLines {
  int inner, outer, lanes, lines, groups;
  int tokens;  // In shared memory.
  bool columns;
};

// q, k and their cotangents are ["batch seq heads key_dim"]; v, out and their cotangents
// ["batch seq heads value_dim"]; states ["batch heads key_dim value_dim"], in f32.
struct RecurrenceParameters {
  RecurrenceLines of;
  int64_t batch, heads;
  int seq, key_dim, value_dim;
  bool delta;
  bool aligned;  // Every row of every tensor begins at a multiple of 16 bytes.
  const void *query, *key, *value, *cotangent;
  const float *log_decay, *beta;         // ["batch seq heads"]
  const int32_t* segments;               // ["batch seq"], or null.
  const float *state, *final_cotangent;  // Or null.
  void *out, *dquery, *dkey, *dvalue;    // Null `out`: the kernel writes `difference`.
  float *last_state, *dlog_decay, *dbeta, *dstate;

  // Scratch memory of the gradient, in f32: what beta multiplies and the cotangent of beta times
  // it, in the shape of v; the part of dk by the delta rule, in that of k; by head, group and token
  // the sums over a group's columns and rows that dbeta and dlog_decay consist of; by head and
  // group the last state times its cotangent.
  float *difference, *dadded, *delta_dkey, *beta_parts, *decay_parts, *last_parts;
  int beta_groups, decay_groups;
};

}  // namespace tessera::cuda
