// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/generation.h"

#include <algorithm>

#include "core/base/error.h"

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

StopRules::StopRules(const DecodeHParams& p, const PromptText& text)
    : text_(text), min_steps_(p.min_decode_steps), strings_(p.stop_strings) {
  const ErrorContext where("task.decode.stop_tokens");
  if (p.stop_at_end && text.end_id()) tokens_.push_back(*text.end_id());
  for (const std::string& name : p.stop_tokens) tokens_.push_back(text.id_of(name));
  std::sort(tokens_.begin(), tokens_.end());
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
}

std::optional<Finish> StopRules::finish(const std::vector<int32_t>& prompt,
                                        const std::vector<int32_t>& ids, int64_t max_steps) const {
  const auto count = static_cast<int64_t>(ids.size());
  if (count > min_steps_) {
    if (std::binary_search(tokens_.begin(), tokens_.end(), ids.back())) return Finish::kStopToken;
    if (!strings_.empty() && stop_string_in(text_.continuation(prompt, ids)) != std::string::npos)
      return Finish::kStopString;
  }
  if (count >= max_steps) return Finish::kLength;
  return std::nullopt;
}

std::string StopRules::shown(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                             Finish finish) const {
  if (finish == Finish::kStopToken) return text_.continuation(prompt, {ids.begin(), ids.end() - 1});
  const std::string text = text_.continuation(prompt, ids);
  return finish == Finish::kStopString ? text.substr(0, stop_string_in(text)) : text;
}

size_t StopRules::stop_string_in(const std::string& text) const {
  size_t first = std::string::npos;
  for (const std::string& stop : strings_) first = std::min(first, text.find(stop));
  return first;
}

}  // namespace tessera
