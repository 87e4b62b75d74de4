// SPDX-License-Identifier: Apache-2.0
#include "experiments/quiz/multiple_choice.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {

template class HolderOf<ScoreMetric, MultipleChoice::HParams>;

namespace {

const TemplateRegistrar<ScoreMetric, MultipleChoice> kRegisterMultipleChoice;

}  // namespace

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
      fail("row {} holds {} documents, but an answer needs a row of its own; set packed=false",
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
    right_by_label += is_right(&Answer::nats_a_label) ? 1 : 0;
  }
  if (questions == 0)
    fail("the dataset holds no question of {} answers (num_choices)", p_.num_choices);
  const auto part = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(questions);
  };
  return {{"accuracy", part(right)},
          {"normalised_accuracy", part(right_by_label)},
          {"questions", static_cast<double>(questions)}};
}

}  // namespace tessera
