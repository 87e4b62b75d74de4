// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/stop_rules.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {

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
