// SPDX-License-Identifier: Apache-2.0
#include "experiments/quiz/metrics.h"

#include <algorithm>

#include "core/base/error.h"
#include "tasks/decode/decode_examples.h"

namespace tessera {

template class HolderOf<PredictMetric, ExactMatch::HParams>;
template class HolderOf<ScoreMetric, MultipleChoice::HParams>;

namespace {

const TemplateRegistrar<PredictMetric, ExactMatch> kRegisterExactMatch;
constexpr const char* kSpace = " \t\r\n";
const TemplateRegistrar<ScoreMetric, MultipleChoice> kRegisterMultipleChoice;

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

MultipleChoice::MultipleChoice(const HParams& p) : p_(p) {
  if (p.num_choices < 2) fail("num_choices is {}; expected at least 2", p.num_choices);
}

std::vector<std::string> MultipleChoice::names() const {
  return {"accuracy", "normalised_accuracy", "questions"};
}

void MultipleChoice::add(const ScoredExample& example) {
  if (const auto found = example.row.find("segment_ids"); found != example.row.end()) {
    const auto* segments = found->second.data<int32_t>();
    const int32_t last = *std::max_element(segments, segments + found->second.shape.at(0));
    if (last > 1)
      fail("row {} has {} documents, but each answer must be a row; set packed=false",
           example.number, last);
  }
  const ExampleScore& score = example.scores.at("log_pplx");
  questions_[example.number / p_.num_choices][example.number % p_.num_choices] = {
      score.sum, score.sum / score.weight};
}

std::map<std::string, double> MultipleChoice::values() const {
  int64_t questions = 0, right = 0, right_by_label = 0;
  for (const auto& [question, answers] : questions_) {
    if (static_cast<int64_t>(answers.size()) < p_.num_choices) continue;
    const Answer& best = answers.at(0);
    const auto is_right = [&](double Answer::*nats) {
      return std::all_of(std::next(answers.begin()), answers.end(),
                         [&](const auto& other) { return best.*nats < other.second.*nats; });
    };
    ++questions;
    right += is_right(&Answer::nats) ? 1 : 0;
    right_by_label += is_right(&Answer::nats_per_label) ? 1 : 0;
  }
  if (questions == 0)
    fail("the dataset has no question with {} answers (num_choices)", p_.num_choices);
  const auto part = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(questions);
  };
  return {{"accuracy", part(right)},
          {"normalised_accuracy", part(right_by_label)},
          {"questions", static_cast<double>(questions)}};
}

}  // namespace tessera
