// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/pre_tokenizer.h"

#include "core/base/error.h"
#include "inputs/tokenizers/json_flag.h"

namespace tessera {
namespace {

constexpr size_t kMostSteps = 64;

}  // namespace

PreTokenizer::PreTokenizer(const Json& json) {
  if (!json.is_null()) add(json);
}

void PreTokenizer::add(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (is_byte_level_)
    fail("{}: '{}' comes after ByteLevel, which must be the last step", json.where(), type);
  if (steps_.size() >= kMostSteps)
    fail("{}: more than {} steps of pre-tokenization are not supported", json.where(), kMostSteps);
  if (type == "Sequence") {
    for (const Json& each : json.at("pretokenizers").as_array()) add(each);
  } else if (type == "ByteLevel") {
    if (flag_of(json, "add_prefix_space", true)) steps_.push_back(make_prefix_space_step());
    if (flag_of(json, "use_regex", true)) steps_.push_back(make_scan_step(WordPattern::kGpt2));
    is_byte_level_ = true;
  } else {
    steps_.push_back(make_split_step(json));
  }
}

void PreTokenizer::for_each_word(const TextPiece& piece,
                                 const std::function<void(std::string_view)>& take) const {
  run(0, piece, take);
}

void PreTokenizer::run(size_t step, const TextPiece& piece,
                       const std::function<void(std::string_view)>& take) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return take(piece.text);
  steps_[step]->split(piece, [&](const TextPiece& part) { run(step + 1, part, take); });
}

std::string PreTokenizer::description() const {
  std::string text;
  for (const auto& step : steps_) text += step->description() + "; ";
  return text;
}

}  // namespace tessera
