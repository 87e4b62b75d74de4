// SPDX-License-Identifier: Apache-2.0
// When a continuation ends: at a stop token, before a stop string, or after so many tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/enum_names.h"
#include "tasks/decode/decode_hparams.h"
#include "tasks/decode/prompt_text.h"

namespace tessera {

// Why a continuation ended.
enum class Finish { kStopToken, kStopString, kLength };

constexpr std::array<EnumName<Finish>, 3> enum_names(Finish) {
  return {{{Finish::kStopToken, "stop_token"},
           {Finish::kStopString, "stop_string"},
           {Finish::kLength, "length"}}};
}

class StopRules {
 public:
  // `text` outlives this. Error for a stop token that there is not.
  StopRules(const DecodeHParams& p, const PromptText& text);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Those that may not come as token number `count` (from 1): all until min_decode_steps are past.
  const std::vector<int32_t>& suppressed(int64_t count) const {
    return count > min_steps_ ? none_ : tokens_;
  }
  // Whether `ids`, the last of which is new, are a whole continuation, of at most `max_steps`.
  std::optional<Finish> finish(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                               int64_t max_steps) const;
  // The text of a continuation, which ends before a stop string and shows no stop token.
  std::string shown(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                    Finish finish) const;

 private:
  size_t stop_string_in(const std::string& text) const;  // npos: none.

  const PromptText& text_;
  int64_t min_steps_;
  std::vector<int32_t> tokens_, none_;
  std::vector<std::string> strings_;
};

}  // namespace tessera
