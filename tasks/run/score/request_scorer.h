// SPDX-License-Identifier: Apache-2.0
// Scores requests with a model: rows of like lengths together, each by the eval program of its
// length. In a run of several processes each computes its share of the rows of every batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "inputs/score_requests.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {

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
int64_t next_token_vocabulary(const ModelSession& session);

class RequestScorer {
 public:
  // Adds a program for each length that occurs to the session, before it allocates; `requests`
  // outlives this. Error if the model has no scores of single tokens.
  RequestScorer(ModelSession& session, const std::vector<ScoreRequest>& requests,
                const ScorerOptions& options);

  // The scores in the order of the requests, the same in every process; nullopt after a signal. A
  // collective call, when the executor has allocated. `progress` gets the number of requests done.
  std::optional<std::vector<RequestScore>> run(const StopSignal& stop,
                                               const std::function<void(int64_t)>& progress);

 private:
  // Requests whose rows have one length, the longest first.
  struct Bucket {
    int64_t length = 0;
    int64_t rows = 0;  // In a batch.
    std::vector<size_t> requests;
    int program = 0;
  };
  void sort_into_buckets(const ScorerOptions& options);
  int64_t padded(int64_t length, const ScorerOptions& options) const;
  void add_program(Bucket* bucket);
  Batch batch_of(const Bucket& bucket, size_t first) const;
  void take_scores(const Bucket& bucket, size_t first, const ScoredBatch& scored,
                   std::vector<RequestScore>* scores) const;

  ModelSession& session_;
  const std::vector<ScoreRequest>& requests_;
  int64_t devices_;
  int64_t length_unit_ = 1;  // The length of a row is a multiple of it, or the longest.
  std::vector<Bucket> buckets_;
};

}  // namespace tessera
