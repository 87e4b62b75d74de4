// SPDX-License-Identifier: Apache-2.0
// The knobs of decoding, `task.decode.…`: how tokens are chosen, when a continuation ends, how much
// is decoded at once. They say nothing of the model.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

enum class DecodeStrategy {
  kGreedy,  // The most probable token, always.
  kSample,  // A token drawn with its probability.
  kBeam,    // The continuations that score best among those that a beam search sees.
};

constexpr std::array<EnumName<DecodeStrategy>, 3> enum_names(DecodeStrategy) {
  return {{{DecodeStrategy::kGreedy, "greedy"},
           {DecodeStrategy::kSample, "sample"},
           {DecodeStrategy::kBeam, "beam"}}};
}

// What to do with a prompt that does not fit in the cache.
enum class LongPrompts {
  kRefuse,
  kTruncate,  // Its beginning goes, so that max_decode_steps tokens fit behind what is kept.
};

constexpr std::array<EnumName<LongPrompts>, 2> enum_names(LongPrompts) {
  return {{{LongPrompts::kRefuse, "refuse"}, {LongPrompts::kTruncate, "truncate"}}};
}

struct DecodeHParams {
  static constexpr std::string_view kName = "Decode";
  DecodeStrategy strategy = DecodeStrategy::kSample;
  // Of samples: first the temperature, then the top_k most probable ids, then of those the fewest
  // whose probabilities come to top_p.
  double temperature = 0.8;  // 0: greedy.
  int64_t top_k = 0;         // 0: all.
  double top_p = 1.0;
  int64_t seed = 1234;
  // Of beam search: a continuation of n tokens scores its log-probability / ((5 + n) / 6) to the
  // power of length_penalty (Wu et al., arXiv 1609.08144, as Pax has it).
  int64_t beam_size = 4;
  double length_penalty = 0.8;

  int64_t num_samples = 1;  // For each prompt; of a beam search the best so many.
  int64_t max_decode_steps = 128;
  int64_t min_decode_steps = 0;           // Until then nothing ends a continuation.
  bool stop_at_end = true;                // At the tokenizer's end of a document, if it has one.
  std::vector<std::string> stop_tokens;   // Others: names ("<|im_end|>") or ids ("50256").
  std::vector<std::string> stop_strings;  // The text ends before the first of them.

  int64_t batch = 8;         // Rows decoded at once.
  int64_t cache_length = 0;  // Tokens of a row; 0: as many as prompts and continuations take.
  // How far back a token may look. A row that holds as many tokens forgets the older half of them
  // and goes on, so that no position comes that training never saw. 0: the training input's
  // seq_len, but for a beam search, whose rows cannot forget; -1: no limit.
  int64_t window = 0;
  int64_t prefill_chunk = 64;  // Tokens of a prompt that are read at once.
  LongPrompts long_prompts = LongPrompts::kRefuse;

  // Of datasets: the first prompt_length tokens of each document are its prompt, the rest its
  // reference. 0: the tokens before the first that is scored.
  int64_t prompt_length = 0;
  int64_t num_examples = -1;  // Of each dataset; -1: all.
  FIELDS(strategy, temperature, top_k, top_p, seed, beam_size, length_penalty, num_samples,
         max_decode_steps, min_decode_steps, stop_at_end, stop_tokens, stop_strings, batch,
         cache_length, window, prefill_chunk, long_prompts, prompt_length, num_examples)
};

// Error for a value that can be none, by its path under `where` ("task.decode").
void check(const DecodeHParams& p, std::string_view where = "task.decode");

// Consecutive rows of the batch that a prompt takes.
int64_t rows_per_prompt(const DecodeHParams& p);

}  // namespace tessera
