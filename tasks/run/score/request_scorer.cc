// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/score/request_scorer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "inputs/token_row.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr const char* kAccuracy = "accuracy";
constexpr const char* kLogPplx = "log_pplx";
constexpr int64_t kShortest = 32;  // Tokens of a row.

// The layout of token ids of this shape.
Type ids_type(const ModelSession& session, int64_t rows, int64_t length) {
  return apply_rules(session.rules().activations, session.mesh(),
                     make_type(DType::kI32, {{"batch", rows, {}}, {"seq", length, {}}}));
}

}  // namespace

int64_t next_token_vocabulary(const ModelSession& session) {
  const BaseTask& task = session.task();
  if (task.model().decoder_start_id())
    fail(
        "requests are scored by models that read context and continuation as one text; this one "
        "reads the context by an encoder");
  const ErrorContext where("requests are scored by models that predict the next token");
  const DecodeSetting one_token{.mesh = session.mesh(),
                                .rules = session.rules(),
                                .batch = session.batch_parts(),
                                .cache_length = 1};
  const Graph graph = graph_of(task, "decode_graph()", names::kLogits, [&] {
    return task.decode_graph(one_token, session.eval_weights());
  });
  return graph.type(graph.find_output(names::kLogits)->value).axes.back().size;
}

RequestScorer::RequestScorer(ModelSession& session, const std::vector<ScoreRequest>& requests,
                             const ScorerOptions& options)
    : session_(session), requests_(requests), devices_(options.devices) {
  // A ring divides each device's part of a sequence into two halves.
  const int64_t parts = session.mesh().size_along(ids_type(session, 0, 0).axes[1].split);
  length_unit_ = parts > 1 ? 2 * parts : 1;
  sort_into_buckets(options);
  for (Bucket& bucket : buckets_) add_program(&bucket);
}

// The lengths of rows are 32, 48, 64, 96, … and the longest.
int64_t RequestScorer::padded(int64_t length, const ScorerOptions& options) const {
  int64_t size = kShortest;
  while (size < length) size = size + size / 2 >= length ? size + size / 2 : 2 * size;
  return std::min(rounded_up(size, length_unit_), options.max_length);
}

void RequestScorer::sort_into_buckets(const ScorerOptions& options) {
  std::map<int64_t, std::vector<size_t>, std::greater<>> by_length;
  for (size_t i = 0; i < requests_.size(); ++i)
    by_length[padded(requests_[i].length(), options)].push_back(i);
  for (auto& [length, requests] : by_length) {
    const int64_t rows = std::min(options.batch_tokens / length, std::ssize(requests));
    buckets_.push_back({.length = length,
                        .rows = rounded_up(std::max<int64_t>(rows, 1), session_.batch_parts()),
                        .requests = std::move(requests)});
  }
}

void RequestScorer::add_program(Bucket* bucket) {
  TraceSetting setting{session_.mesh(), session_.rules(),
                       token_batch_specification(bucket->rows, bucket->length)};
  setting.scores_tokens = true;
  const BaseTask& task = session_.task();
  Graph graph = graph_of(task, "eval_graph()", names::kLogProbs,
                         [&] { return task.eval_graph(setting, session_.eval_weights()); });
  bucket->program = session_.add_program(std::move(graph));
}

// This process's rows of the batch that begins with the bucket's request number `first`.
Batch RequestScorer::batch_of(const Bucket& bucket, size_t first) const {
  const std::vector<RowRange> ranges =
      rows_of(ids_type(session_, bucket.rows, bucket.length), session_.mesh(),
              session_.processes().rank() * devices_, devices_);
  int64_t rows = 0;
  for (const RowRange& range : ranges) rows += range.size();
  Batch batch = make_token_batch(rows, bucket.length);
  int64_t at = 0;
  for (const RowRange& range : ranges)
    for (int64_t row = range.begin; row < range.end; ++row, ++at)
      if (const size_t i = first + static_cast<size_t>(row); i < bucket.requests.size())
        fill_row(requests_[bucket.requests[i]], token_row(batch, at));
  return batch;
}

void RequestScorer::take_scores(const Bucket& bucket, size_t first, const ScoredBatch& scored,
                                std::vector<RequestScore>* scores) const {
  const auto length = static_cast<size_t>(bucket.length);
  for (size_t row = 0; row < static_cast<size_t>(bucket.rows); ++row) {
    if (first + row == bucket.requests.size()) return;
    const size_t number = bucket.requests[first + row];
    const ScoreRequest& request = requests_[number];
    const auto begin = static_cast<std::ptrdiff_t>(row * length + request.context.size() - 1);
    (*scores)[number] = {
        .log_likelihood = -scored.rows.at(kLogPplx)[row].sum,
        .is_greedy = scored.rows.at(kAccuracy)[row].is_one_for_all(),
        .log_probs = {scored.log_probs.begin() + begin,
                      scored.log_probs.begin() + begin + std::ssize(request.continuation)}};
  }
}

std::optional<std::vector<RequestScore>> RequestScorer::run(
    const StopSignal& stop, const std::function<void(int64_t)>& progress) {
  std::vector<RequestScore> scores(requests_.size());
  int64_t done = 0;
  for (const Bucket& bucket : buckets_) {
    EvalProgram program(session_.executor(), bucket.program);
    for (size_t first = 0; first < bucket.requests.size();
         first += static_cast<size_t>(bucket.rows)) {
      if (session_.processes().all_reduce_max(stop.requested(), "a batch of requests") != 0)
        return std::nullopt;
      take_scores(bucket, first, program.run(batch_of(bucket, first)), &scores);
      done += std::min(bucket.rows, std::ssize(bucket.requests) - static_cast<int64_t>(first));
      progress(done);
    }
  }
  return scores;
}

}  // namespace tessera
