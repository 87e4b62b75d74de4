// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/generation.h"

namespace tessera {

SampledGeneration::SampledGeneration(std::vector<int32_t> prompt, int64_t max_steps, uint64_t key,
                                     Sampler& sampler, const StopRules& stop)
    : BaseGeneration(std::move(prompt)),
      max_steps_(max_steps),
      key_(key),
      sampler_(sampler),
      stop_(stop) {}

void SampledGeneration::advance(const RowLogits& logits) {
  const auto number = static_cast<int64_t>(continuation_.ids.size());
  const DrawnToken draw =
      sampler_.draw(logits.front(), stop_.suppressed(number + 1), sample_uniform(key_, number));
  continuation_.ids.push_back(draw.id);
  continuation_.log_probability += draw.log_probability;
  continuation_.score = continuation_.log_probability;
  next_ = {draw.id};
  if (const auto finish = stop_.finish(prompt(), continuation_.ids, max_steps_)) {
    continuation_.finish = *finish;
    done_ = true;
  }
}

}  // namespace tessera
