// SPDX-License-Identifier: Apache-2.0
// --mode=score: reads a file of requests, and writes a line of scores for each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/multiples.h"
#include "core/base/seconds.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "inputs/score_requests.h"
#include "inputs/token_row.h"
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/session/run_over_checkpoints.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr int64_t kMostTokensOfPart = 8192;

constexpr const char* kAccuracy = "accuracy";
constexpr const char* kLogPplx = "log_pplx";
constexpr int64_t kShortest = 32;  // Tokens of a row.

// The layout of token ids of this shape.
Type ids_type(const ModelSession& session, int64_t rows, int64_t length) {
  return apply_rules(session.rules().activations, session.mesh(),
                     make_type(DType::kI32, {{"batch", rows, {}}, {"seq", length, {}}}));
}

struct RequestScore {
  double log_likelihood = 0.0;   // Nats, of the continuation.
  bool is_greedy = false;        // Whether each of its tokens is the likeliest.
  std::vector<float> log_probs;  // Nats, of each of its tokens.
};

struct ScorerOptions {
  int64_t devices = 1;       // In this process.
  int64_t max_length = 0;    // The longest row that the model may read.
  int64_t batch_tokens = 0;  // Tokens of a batch over all devices.
};

// The number of tokens between which the model chooses. Error unless it predicts each token from
// those before it, in one text.
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

// Scores requests with a model: rows of like lengths together, each by the eval program of its
// length. In a run of several processes each computes its share of the rows of every batch.
class RequestScorer {
 public:
  // Adds a program for each length that occurs to the session, before it allocates; `requests`
  // outlives this. Error if the model has no scores of single tokens.
  RequestScorer(ModelSession& session, const std::vector<ScoreRequest>& requests,
                const ScorerOptions& options)
      : session_(session), requests_(requests), devices_(options.devices) {
    // A ring divides each device's part of a sequence into two halves.
    const int64_t parts = session.mesh().size_along(ids_type(session, 0, 0).axes[1].split);
    length_unit_ = parts > 1 ? 2 * parts : 1;
    sort_into_buckets(options);
    for (Bucket& bucket : buckets_) add_program(&bucket);
  }

  // The scores in the order of the requests, the same in every process; nullopt after a signal. A
  // collective call, when the executor has allocated. `progress` gets the number of requests done.
  std::optional<std::vector<RequestScore>> run(const StopSignal& stop,
                                               const std::function<void(int64_t)>& progress) {
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

 private:
  // Requests whose rows have one length, the longest first.
  struct Bucket {
    int64_t length = 0;
    int64_t rows = 0;  // In a batch.
    std::vector<size_t> requests;
    int program = 0;
  };

  // The lengths of rows are 32, 48, 64, 96, … and the longest.
  int64_t padded(int64_t length, const ScorerOptions& options) const {
    int64_t size = kShortest;
    while (size < length) size = size + size / 2 >= length ? size + size / 2 : 2 * size;
    return std::min(rounded_up(size, length_unit_), options.max_length);
  }

  void sort_into_buckets(const ScorerOptions& options) {
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

  void add_program(Bucket* bucket) {
    TraceSetting setting{session_.mesh(), session_.rules(),
                         token_batch_specification(bucket->rows, bucket->length)};
    setting.scores_tokens = true;
    const BaseTask& task = session_.task();
    Graph graph = graph_of(task, "eval_graph()", names::kLogProbs,
                           [&] { return task.eval_graph(setting, session_.eval_weights()); });
    bucket->program = session_.add_program(std::move(graph));
  }

  // This process's rows of the batch that begins with the bucket's request number `first`.
  Batch batch_of(const Bucket& bucket, size_t first) const {
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

  void take_scores(const Bucket& bucket, size_t first, const ScoredBatch& scored,
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

  ModelSession& session_;
  const std::vector<ScoreRequest>& requests_;
  int64_t devices_;
  int64_t length_unit_ = 1;  // The length of a row is a multiple of it, or the longest.
  std::vector<Bucket> buckets_;
};

// As lm-evaluation-harness: the text is encoded as a whole, and spaces at the end of the context
// belong to the continuation.
void encode_request(const PromptText& text, const std::string& context,
                    const std::string& continuation, ScoreRequest* request) {
  const size_t end = context.find_last_not_of(" \t\n\r\f\v") + 1;
  std::vector<int32_t> whole = text.prompt_ids(context + continuation);
  if (end == 0) {
    request->context = text.beginning();
    if (text.begins_with_start_id()) whole.erase(whole.begin());
    request->continuation = std::move(whole);
    return;
  }
  request->context = text.prompt_ids(context.substr(0, end));
  const auto begin = std::min(std::ssize(request->context), std::ssize(whole));
  request->continuation.assign(whole.begin() + begin, whole.end());
}

// The requests as a message to the other processes: only their ids count.
std::string packed(const std::vector<ScoreRequest>& requests) {
  std::vector<int32_t> ids;
  std::vector<int64_t> sizes;
  for (const ScoreRequest& request : requests)
    for (const std::vector<int32_t>* part : {&request.context, &request.continuation}) {
      sizes.push_back(std::ssize(*part));
      ids.insert(ids.end(), part->begin(), part->end());
    }
  return pack(ids, sizes);
}

std::vector<ScoreRequest> unpacked(const std::string& message) {
  std::vector<int32_t> ids;
  std::vector<int64_t> sizes;
  unpack(message, ids, sizes);
  std::vector<ScoreRequest> requests(sizes.size() / 2);
  auto at = ids.begin();
  for (size_t i = 0; i < sizes.size(); ++i) {
    ScoreRequest& request = requests[i / 2];
    (i % 2 == 0 ? request.context : request.continuation).assign(at, at + sizes[i]);
    at += sizes[i];
  }
  return requests;
}

class ScoreRun final : public RunOverCheckpoints {
 public:
  ScoreRun(const RunContext& context, const ScoringOptions& options)
      : RunOverCheckpoints(context, options.checkpoint, "score with"), options_(options) {
    begin();
  }

 private:
  ModelSession& open_session() override {
    session_.emplace(config_, ModelSession::Purpose::kRunning, devices_, setting_.devices,
                     processes_, setting_.job_log_dir);
    const std::unique_ptr<BaseInput> input = trained_input(config_);
    read_requests(sequence_length(*input));
    scorer_.emplace(*session_, requests_,
                    ScorerOptions{.devices = setting_.devices,
                                  .max_length = sequence_length(*input),
                                  .batch_tokens = batch_tokens(*input)});
    session_->executor().allocate();
    if (!session_->remark().empty()) console_.info(session_->remark());
    return *session_;
  }

  bool is_done(int64_t step) const override { return std::filesystem::exists(output(step)); }

  std::string heading(int64_t step) const override {
    return fmt::format("{} requests for {} in {}, step {}", requests_.size(), setting_.experiment,
                       setting_.job_log_dir.string(), step);
  }

  int64_t use(const CheckpointInfo& info, const StopSignal& stop) override {
    const auto begin = std::chrono::steady_clock::now();
    const auto scores = scorer_->run(stop, [&](int64_t done) {
      console_.progress(fmt::format("scored {}/{} requests", done, requests_.size()), 10.0);
    });
    if (!scores) {
      console_.info("stopped before all requests were scored; nothing is written");
      return processes_.all_reduce_max(stop.requested(), "whether to stop");
    }
    if (processes_.is_first()) write(output(info.step), *scores, seconds_since(begin));
    return 0;
  }

  static std::unique_ptr<BaseInput> trained_input(const ExperimentConfig& config) {
    const ErrorContext where("input");
    std::unique_ptr<BaseInput> input = make_input(config.input);
    if (sequence_length(*input) == 0)
      fail("requests are scored by models of tokens; this input has none");
    return input;
  }

  // Process 0 reads them, and sends the ids to the others.
  void read_requests(int64_t max_length) {
    if (processes_.is_first()) {
      std::optional<RunText> text;  // Requests of ids need none.
      requests_ = read_score_requests(
          options_.requests,
          [&](const std::string& context, const std::string& continuation, ScoreRequest* request) {
            if (!text)
              text.emplace(config_, setting_, RunText::Needs::kText,
                           "Give context_ids and continuation_ids");
            encode_request(text->text(), context, continuation, request);
          },
          next_token_vocabulary(*session_), max_length);
    }
    const std::string message = processes_.broadcast(
        processes_.is_first() && processes_.size() > 1 ? packed(requests_) : "", "the requests");
    if (!processes_.is_first()) requests_ = unpacked(message);
  }

  int64_t batch_tokens(const BaseInput& input) const {
    if (options_.batch_tokens > 0) return options_.batch_tokens;
    return std::min(input.global_batch_size() * sequence_length(input),
                    kMostTokensOfPart * session_->batch_parts());
  }

  std::filesystem::path output(int64_t step) const {
    if (!options_.output.empty()) return options_.output;
    return setting_.job_log_dir / "score_out" /
           fmt::format("{}_step_{:010}.jsonl", options_.requests.stem().string(), step);
  }

  void write(const std::filesystem::path& path, const std::vector<RequestScore>& scores,
             double seconds) {
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
    NewFile file(path);
    int64_t tokens = 0, undefined = 0;
    for (const RequestScore& score : scores) {
      tokens += std::ssize(score.log_probs);
      undefined += std::isfinite(score.log_likelihood) ? 0 : 1;
      JsonLine line;
      line.add("log_likelihood", score.log_likelihood);
      line.add_raw("is_greedy", score.is_greedy ? "true" : "false");
      line.add("tokens", std::ssize(score.log_probs));
      if (options_.with_log_probs)
        line.add_raw("log_probs", json_list(score.log_probs, [](float each) {
                       return std::isfinite(each) ? fmt::to_string(each) : "null";
                     }));
      const std::string text = line.text() + "\n";
      file.write(std::as_bytes(std::span(text)));
    }
    file.finish();
    console_.info(fmt::format("{} requests with {} scored tokens in {:.1f} s: {}", scores.size(),
                              tokens, seconds, path.string()));
    if (undefined > 0)
      fail("{} of {} log-likelihoods are not finite; the model cannot be used at that step",
           undefined, scores.size());
  }

  ScoringOptions options_;
  std::optional<ModelSession> session_;  // None until there is a checkpoint.
  std::vector<ScoreRequest> requests_;
  std::optional<RequestScorer> scorer_;
};

}  // namespace

std::unique_ptr<BaseRun> score_run(const RunContext& context, const ScoringOptions& options) {
  return std::make_unique<ScoreRun>(context, options);
}

}  // namespace tessera
