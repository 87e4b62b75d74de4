// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode_hparams.h"

#include <cmath>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;  // Limit for counts that determine array sizes.

void check_numbers(const DecodeHParams& p, std::string_view where) {
  const auto at_least = [&](std::string_view field, int64_t value, int64_t least) {
    check_at_least(where, field, value, least);
    if (value > kMost) fail("{}: {} is {}, expected at most {}", where, field, value, kMost);
  };
  at_least("top_k", p.top_k, 0);
  at_least("beam_size", p.beam_size, 1);
  at_least("num_samples", p.num_samples, 1);
  at_least("max_decode_steps", p.max_decode_steps, 1);
  at_least("min_decode_steps", p.min_decode_steps, 0);
  at_least("batch", p.batch, 1);
  at_least("cache_length", p.cache_length, 0);
  at_least("window", p.window, -1);
  at_least("prefill_chunk", p.prefill_chunk, 1);
  at_least("prompt_length", p.prompt_length, 0);
  if (p.num_examples != -1) at_least("num_examples", p.num_examples, 1);
  if (!(p.temperature >= 0.0) || std::isinf(p.temperature))
    fail("{}.temperature is {}; expected 0 (greedy) or a positive number", where, p.temperature);
  if (!(p.top_p > 0.0 && p.top_p <= 1.0))
    fail("{}.top_p is {}; expected above 0 and at most 1 (all)", where, p.top_p);
  if (!(p.length_penalty >= 0.0) || std::isinf(p.length_penalty))
    fail("{}.length_penalty is {}; expected 0 (none) or a positive number", where,
         p.length_penalty);
}

}  // namespace

void check(const DecodeHParams& p, std::string_view where) {
  check_numbers(p, where);
  if (p.min_decode_steps > p.max_decode_steps)
    fail("{}.min_decode_steps is {}, more than max_decode_steps ({})", where, p.min_decode_steps,
         p.max_decode_steps);
  if (p.cache_length > 0 && p.window <= 0 && p.max_decode_steps > p.cache_length)
    fail(
        "{}.max_decode_steps is {}, but a row's cache holds {} tokens (cache_length), of its "
        "prompt and its continuation together",
        where, p.max_decode_steps, p.cache_length);
  for (const std::string& text : p.stop_strings)
    if (text.empty()) fail("{}.stop_strings holds an empty text, which is everywhere", where);
  if (p.strategy != DecodeStrategy::kBeam) return;
  if (p.window > 0)
    fail("{}.window is {}, but the rows of a beam search cannot forget; take it away", where,
         p.window);
  if (p.beam_size > p.batch)
    fail("{}.beam_size is {}, more than the {} rows decoded at once; set {}.batch to at least {}",
         where, p.beam_size, p.batch, where, p.beam_size);
  if (p.num_samples > p.beam_size)
    fail("{}.num_samples is {}, but a beam search of beam_size {} gives at most {}", where,
         p.num_samples, p.beam_size, p.beam_size);
}

int64_t rows_per_prompt(const DecodeHParams& p) {
  return p.strategy == DecodeStrategy::kBeam ? p.beam_size : 1;
}

}  // namespace tessera
