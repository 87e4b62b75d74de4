// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/generation.h"

#include <algorithm>
#include <cmath>
#include <functional>

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

BeamSearch::BeamSearch(std::vector<int32_t> prompt, const DecodeHParams& p, DrawableIds drawable,
                       const StopRules& stop)
    : BaseGeneration(std::move(prompt)),
      p_(p),
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
    fail("none of {} ids may be drawn: all are reserved or padding", drawable_.size());
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
  top_ids(scores_, p_.beam_size, &best_ids_);
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
  continuation.score = score_of(continuation.log_probability, steps_);
  const auto place =
      std::ranges::upper_bound(finished_, continuation.score, std::greater{}, &Continuation::score);
  if (place - finished_.begin() >= p_.beam_size) return;
  finished_.insert(place, std::move(continuation));
  if (static_cast<int64_t>(finished_.size()) > p_.beam_size) finished_.pop_back();
}

void BeamSearch::keep_best(std::vector<Candidate> candidates) {
  std::ranges::stable_sort(candidates, std::greater{}, &Candidate::log_probability);
  if (static_cast<int64_t>(candidates.size()) > p_.beam_size)
    candidates.resize(static_cast<size_t>(p_.beam_size));
  std::vector<Continuation> live;
  next_.clear();
  parents_.clear();
  for (const Candidate& candidate : candidates) {
    Continuation continuation = extended(candidate);
    if (const auto reason = stop_.finish(prompt(), continuation.ids, p_.max_decode_steps)) {
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
  if (static_cast<int64_t>(finished_.size()) < p_.num_samples) return true;
  const double worst = finished_[static_cast<size_t>(p_.num_samples) - 1].score;
  return score_of(live_.front().log_probability, p_.max_decode_steps) > worst;
}

double BeamSearch::score_of(double log_probability, int64_t tokens) const {
  return log_probability / std::pow((5.0 + static_cast<double>(tokens)) / 6.0, p_.length_penalty);
}

std::vector<Continuation> BeamSearch::take() {
  if (static_cast<int64_t>(finished_.size()) > p_.num_samples)
    finished_.resize(static_cast<size_t>(p_.num_samples));
  return std::move(finished_);
}

}  // namespace tessera
