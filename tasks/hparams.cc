// SPDX-License-Identifier: Apache-2.0
#include "tasks/hparams.h"

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
        "{}.max_decode_steps is {}, but the cache of a row holds only {} tokens (cache_length) for "
        "its prompt and continuation",
        where, p.max_decode_steps, p.cache_length);
  for (const std::string& text : p.stop_strings)
    if (text.empty())
      fail("{}.stop_strings has an empty string, which matches everywhere; remove it", where);
  if (p.strategy != DecodeStrategy::kBeam) return;
  if (p.window > 0)
    fail("{}.window is {}, but the rows of a beam search cannot drop tokens; remove it", where,
         p.window);
  if (p.beam_size > p.batch)
    fail("{}.beam_size is {}, more than the {} rows decoded at once; set {}.batch to at least {}",
         where, p.beam_size, p.batch, where, p.beam_size);
  if (p.num_samples > p.beam_size)
    fail("{}.num_samples is {}, but a beam search gives at most beam_size = {}", where,
         p.num_samples, p.beam_size);
}

int64_t rows_per_prompt(const DecodeHParams& p) {
  return p.strategy == DecodeStrategy::kBeam ? p.beam_size : 1;
}

void check(const TrainHParams& p) {
  const auto at_least = [](std::string_view field, int64_t value, int64_t least) {
    check_at_least("task.train", field, value, least);
  };
  at_least("num_train_steps", p.num_train_steps, 0);
  at_least("num_microbatches", p.num_microbatches, 1);
  at_least("save_interval_steps", p.save_interval_steps, 0);
  at_least("save_max_to_keep", p.save_max_to_keep, 0);
  at_least("save_keep_every_steps", p.save_keep_every_steps, 0);
  at_least("eval_interval_steps", p.eval_interval_steps, 0);
  at_least("metrics_interval_steps", p.metrics_interval_steps, 0);
  at_least("summary_interval_steps", p.summary_interval_steps, 0);
  at_least("prefetch_batches", p.prefetch_batches, 1);
  at_least("collective_timeout_seconds", p.collective_timeout_seconds, 1);
  at_least("stop_deadline_seconds", p.stop_deadline_seconds, 1);
  at_least("sample.length", p.sample.length, 0);
  at_least("sample.interval_steps", p.sample.interval_steps, 0);
  check_finite("task.train", "early_stopping.min_improvement", p.early_stopping.min_improvement);
  check_finite("task.train", "early_stopping.target", p.early_stopping.target);
  at_least("early_stopping.patience_evals", p.early_stopping.patience_evals, 0);
  if (p.eval_loop_num_batches != -1 && p.eval_loop_num_batches < 1)
    fail("task.train.eval_loop_num_batches is {}; expected -1 (the whole set) or at least 1",
         p.eval_loop_num_batches);
}

}  // namespace tessera
