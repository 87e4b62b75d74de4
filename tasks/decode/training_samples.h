// SPDX-License-Identifier: Apache-2.0
// Samples during training and at its end (task.train.sample): a few prompts continued with the
// current weights.
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
  // Adds programs to the session before it allocates; call `begin` after. The input provides the
  // tokenizer and outlives this.
  TrainingSamples(ModelSession& session, const BaseInput& input);
  void begin();

  // A collective call; process 0 gets the examples.
  std::vector<DecodedExample> take();

 private:
  PromptText text_;
  std::vector<DecodedExample> prompts_;
  std::optional<Decoding> decoding_;
};

// Prints samples after `step` steps and writes them to the run's log.
void report_samples(TrainingSamples& samples, int64_t step, RunLog& log, Console& console);

}  // namespace tessera
