// SPDX-License-Identifier: Apache-2.0
// --mode=score: reads a file of requests, and writes a line of scores for each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/seconds.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "inputs/score_requests.h"
#include "tasks/run/decode/run_text.h"
#include "tasks/run/modes/checkpoint_runs.h"
#include "tasks/run/score/request_scorer.h"
#include "tasks/run/session/run_over_checkpoints.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {
namespace {

constexpr int64_t kMostTokensOfPart = 8192;

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
