// SPDX-License-Identifier: Apache-2.0
// The knobs of decoding, `task.decode.…`: how tokens are chosen, when a continuation ends, how many
// rows are decoded at once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

enum class DecodeStrategy {
  kGreedy,  // The most probable token.
  kSample,  // A token drawn from the distribution.
  kBeam,    // Beam search: the continuations with the highest score.
};

constexpr std::array<EnumName<DecodeStrategy>, 3> enum_names(DecodeStrategy) {
  return {{{DecodeStrategy::kGreedy, "greedy"},
           {DecodeStrategy::kSample, "sample"},
           {DecodeStrategy::kBeam, "beam"}}};
}

// What to do with a prompt that does not fit into the cache.
enum class LongPrompts {
  kRefuse,
  kTruncate,  // Drop its beginning, so that max_decode_steps tokens fit after the rest.
};

constexpr std::array<EnumName<LongPrompts>, 2> enum_names(LongPrompts) {
  return {{{LongPrompts::kRefuse, "refuse"}, {LongPrompts::kTruncate, "truncate"}}};
}

struct DecodeHParams {
  static constexpr std::string_view kName = "Decode";
  DecodeStrategy strategy = DecodeStrategy::kSample;
  // Sampling: divide logits by the temperature, keep the top_k most probable ids, then the smallest
  // set of those whose probabilities sum to top_p.
  double temperature = 0.8;  // 0: greedy.
  int64_t top_k = 0;         // 0: no limit.
  double top_p = 1.0;
  int64_t seed = 1234;
  // Beam search: a continuation of n tokens scores log-probability / ((5 + n) / 6)^length_penalty
  // (Wu et al., arXiv 1609.08144, eq. 14, as in Pax).
  int64_t beam_size = 4;
  double length_penalty = 0.8;

  int64_t num_samples = 1;  // Per prompt; of a beam search, the best ones.
  int64_t max_decode_steps = 128;
  int64_t min_decode_steps = 0;           // No continuation ends before.
  bool stop_at_end = true;                // At the tokenizer's end-of-document token, if any.
  std::vector<std::string> stop_tokens;   // More of them: names ("<|im_end|>") or ids ("50256").
  std::vector<std::string> stop_strings;  // The text ends before the first of these.

  int64_t batch = 8;         // Rows decoded at once.
  int64_t cache_length = 0;  // Tokens of a row; 0: the longest prompt and continuation.
  // The attention window. A row whose cache holds this many tokens drops the older half and
  // continues, so that positions stay within those seen in training. 0: the training input's
  // seq_len (no limit for beam search, whose rows cannot drop tokens); -1: no limit.
  int64_t window = 0;
  int64_t prefill_chunk = 64;  // Prompt tokens per prefill call.
  LongPrompts long_prompts = LongPrompts::kRefuse;

  // For datasets: the first prompt_length tokens of a document are the prompt, the rest is the
  // reference. 0: the prompt ends before the first token with a loss weight.
  int64_t prompt_length = 0;
  int64_t num_examples = -1;  // Per dataset; -1: all.
  FIELDS(strategy, temperature, top_k, top_p, seed, beam_size, length_penalty, num_samples,
         max_decode_steps, min_decode_steps, stop_at_end, stop_tokens, stop_strings, batch,
         cache_length, window, prefill_chunk, long_prompts, prompt_length, num_examples)
};

// Throws an Error for a value out of range, with its path under `where` ("task.decode").
void check(const DecodeHParams& p, std::string_view where = "task.decode");

// Consecutive rows of the batch that one prompt uses.
int64_t rows_per_prompt(const DecodeHParams& p);

}  // namespace tessera
