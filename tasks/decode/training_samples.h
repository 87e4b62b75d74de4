// SPDX-License-Identifier: Apache-2.0
// Samples of what a model has learnt so far, while it trains and when it is done
// (task.train.sample): a few prompts continued by the weights as they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tasks/decode/decode_examples.h"
#include "tasks/decode/decode_program.h"
#include "tasks/logging/console.h"
#include "tasks/logging/run_log.h"

namespace tessera {

class TrainingSamples {
 public:
  // Adds programs to the session, which is allocated before `begin`. The input knows the text, and
  // outlives this.
  TrainingSamples(ModelSession& session, const BaseInput& input);
  void begin();

  // All processes call it; the first one gets the examples.
  std::vector<DecodedExample> take();

 private:
  PromptText text_;
  std::vector<DecodedExample> prompts_;
  std::optional<Decoding> decoding_;
};

// Samples after `step` steps, to the console and to the run's log.
void report_samples(TrainingSamples& samples, int64_t step, RunLog& log, Console& console);

}  // namespace tessera
