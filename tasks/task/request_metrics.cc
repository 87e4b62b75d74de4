// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/request_metrics.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/io/storage/storage.h"

namespace tessera {

REGISTER_TEMPLATE(ScoreMetric, RequestMetrics);

RequestMetrics::RequestMetrics(const HParams& p)
    : requests_(shared_score_requests(path_or_url(p.path, "path"))) {
  for (size_t i = 0; i < requests_->size(); ++i) {
    const ScoreRequest& request = (*requests_)[i];
    const std::string name = request.task.empty() ? "requests" : request.task;
    if (name.find('/') != std::string::npos)
      fail("{}: task '{}' has a name with '/', expected one without", p.path, name);
    Task& task = tasks_[name];
    std::vector<size_t>& answers = task.questions[request.example];
    answers.push_back(i);
    task.has_choices = task.has_choices || answers.size() > 1;
    task.has_characters = task.has_characters && request.characters > 0;
  }
}

std::vector<std::string> RequestMetrics::names() const {
  std::vector<std::string> names;
  for (const auto& [name, task] : tasks_) {
    names.push_back(name + "_accuracy");
    if (task.has_choices && task.has_characters) names.push_back(name + "_accuracy_norm");
    if (!task.has_choices) names.push_back(name + "_perplexity");
  }
  return names;
}

void RequestMetrics::add(const ScoredExample& example) {
  scores_[static_cast<size_t>(example.number)] = {
      .log_likelihood = example.log_likelihood(),
      .is_greedy = example.scores.at("accuracy").is_one_for_all()};
}

bool RequestMetrics::is_scored(const std::vector<size_t>& answers) const {
  return std::ranges::all_of(answers, [&](size_t answer) { return scores_.contains(answer); });
}

template <typename ScoreOf>
bool RequestMetrics::is_right(const std::vector<size_t>& answers, const ScoreOf& score_of) const {
  return (*requests_)[*std::ranges::max_element(answers, {}, score_of)].is_target;
}

void RequestMetrics::add_values(const std::string& name, const Task& task,
                                std::map<std::string, double>* values) const {
  const auto log_likelihood = [&](size_t i) { return scores_.at(i).log_likelihood; };
  double questions = 0.0, right = 0.0, right_norm = 0.0, nats = 0.0;
  for (const auto& [example, answers] : task.questions) {
    if (!is_scored(answers)) continue;  // Fewer batches than the file has were scored.
    ++questions;
    nats -= log_likelihood(answers.front());
    right += task.has_choices ? is_right(answers, log_likelihood)
                              : scores_.at(answers.front()).is_greedy;
    right_norm += is_right(answers, [&](size_t i) {
      return log_likelihood(i) / static_cast<double>((*requests_)[i].characters);
    });
  }
  if (questions == 0.0)
    fail("no question of task '{}' was scored as a whole; score more batches", name);
  (*values)[name + "_accuracy"] = right / questions;
  if (task.has_choices && task.has_characters)
    (*values)[name + "_accuracy_norm"] = right_norm / questions;
  if (!task.has_choices) (*values)[name + "_perplexity"] = std::exp(nats / questions);
}

std::map<std::string, double> RequestMetrics::values() const {
  std::map<std::string, double> values;
  for (const auto& [name, task] : tasks_) add_values(name, task, &values);
  return values;
}

}  // namespace tessera
