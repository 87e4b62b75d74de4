// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/beam_search.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "tasks/decode/sampler.h"

namespace tessera {

double length_norm(int64_t tokens, double length_penalty) {
  return std::pow((5.0 + static_cast<double>(tokens)) / 6.0, length_penalty);
}

BeamSearch::BeamSearch(std::vector<int32_t> prompt, const BeamOptions& options,
                       DrawableIds drawable, const StopRules& stop)
    : BaseGeneration(std::move(prompt)),
      options_(options),
      drawable_(std::move(drawable)),
      stop_(stop),
      scores_(drawable_.size()) {}

void BeamSearch::advance(const RowLogits& logits) {
  CHECK(logits.size() >= live_.size() && !done_);
  std::vector<Candidate> candidates;
  ++steps_;
  for (size_t i = 0; i < live_.size(); ++i) expand(static_cast<int32_t>(i), logits[i], &candidates);
  keep_best(std::move(candidates));
  done_ = live_.empty() || !can_improve();
  if (done_ && finished_.empty())
    fail("of {} ids none may be drawn: all are reserved or padding", drawable_.size());
}

// A stop token finishes a continuation; the best of all other ids are candidates.
void BeamSearch::expand(int32_t parent, std::span<const float> logits,
                        std::vector<Candidate>* candidates) {
  const double before = live_[static_cast<size_t>(parent)].log_probability - log_sum_exp(logits);
  const auto candidate = [&](int32_t id) {
    return Candidate{parent, id, before + static_cast<double>(logits[static_cast<size_t>(id)])};
  };
  if (stop_.suppressed(steps_).empty())
    for (const int32_t id : stop_.tokens())
      if (logits[static_cast<size_t>(id)] > kNeverScore)
        finish(extended(candidate(id)), Finish::kStopToken);
  mask_scores(logits, drawable_, stop_.tokens(), scores_);
  top_ids(scores_, options_.beam_size, &best_ids_);
  for (const int32_t id : best_ids_) candidates->push_back(candidate(id));
}

Continuation BeamSearch::extended(const Candidate& candidate) const {
  Continuation continuation = live_[static_cast<size_t>(candidate.parent)];
  continuation.ids.push_back(candidate.id);
  continuation.log_probability = candidate.log_probability;
  return continuation;
}

void BeamSearch::finish(Continuation continuation, Finish reason) {
  continuation.finish = reason;
  continuation.score = continuation.log_probability / length_norm(steps_, options_.length_penalty);
  const auto place = std::upper_bound(
      finished_.begin(), finished_.end(), continuation,
      [](const Continuation& a, const Continuation& b) { return a.score > b.score; });
  if (place - finished_.begin() >= options_.beam_size) return;
  finished_.insert(place, std::move(continuation));
  if (static_cast<int64_t>(finished_.size()) > options_.beam_size) finished_.pop_back();
}

void BeamSearch::keep_best(std::vector<Candidate> candidates) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.log_probability > b.log_probability; });
  if (static_cast<int64_t>(candidates.size()) > options_.beam_size)
    candidates.resize(static_cast<size_t>(options_.beam_size));
  std::vector<Continuation> live;
  next_.clear();
  parents_.clear();
  for (const Candidate& candidate : candidates) {
    Continuation continuation = extended(candidate);
    if (const auto reason = stop_.finish(prompt(), continuation.ids, options_.max_steps)) {
      finish(std::move(continuation), *reason);
      continue;
    }
    next_.push_back(candidate.id);
    parents_.push_back(candidate.parent);
    live.push_back(std::move(continuation));
  }
  live_ = std::move(live);
}

// Log-probability only decreases, so the score is at most that of the longest continuation.
bool BeamSearch::can_improve() const {
  if (static_cast<int64_t>(finished_.size()) < options_.num_best) return true;
  const double worst = finished_[static_cast<size_t>(options_.num_best) - 1].score;
  const double best =
      live_.front().log_probability / length_norm(options_.max_steps, options_.length_penalty);
  return best > worst;
}

std::vector<Continuation> BeamSearch::take() {
  if (static_cast<int64_t>(finished_.size()) > options_.num_best)
    finished_.resize(static_cast<size_t>(options_.num_best));
  return std::move(finished_);
}

}  // namespace tessera
