// SPDX-License-Identifier: Apache-2.0
#include "experiments/quiz/exact_match.h"

#include "core/base/error.h"
#include "tasks/decode/decode_examples.h"

namespace tessera {

template class HolderOf<PredictMetric, ExactMatch::HParams>;

namespace {

const TemplateRegistrar<PredictMetric, ExactMatch> kRegisterExactMatch;
constexpr const char* kSpace = " \t\r\n";

}  // namespace

std::vector<std::string> ExactMatch::names() const {
  return {"exact_match", "any_match", "examples"};
}

std::string ExactMatch::normalised(const std::string& text) const {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  std::string trimmed = text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
  if (p_.ignore_case)
    for (char& c : trimmed)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return trimmed;
}

void ExactMatch::add(const DecodedExample& example) {
  const std::string wanted = normalised(example.reference);
  ++examples_;
  bool is_first = true, any = false;
  for (const DecodedSample& sample : example.samples) {
    const bool matches = normalised(sample.text) == wanted;
    first_matches_ += is_first && matches ? 1 : 0;
    any = any || matches;
    is_first = false;
  }
  any_matches_ += any ? 1 : 0;
}

std::map<std::string, double> ExactMatch::values() const {
  if (examples_ == 0) fail("no example was decoded");
  const auto part = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(examples_);
  };
  return {{"exact_match", part(first_matches_)},
          {"any_match", part(any_matches_)},
          {"examples", static_cast<double>(examples_)}};
}

}  // namespace tessera
