// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/hparams.h"

#include "core/base/error.h"

namespace tessera {

void check(const DecodeHParams& p, std::string_view where) {
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

}  // namespace tessera
