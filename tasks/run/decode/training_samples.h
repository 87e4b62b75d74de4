// SPDX-License-Identifier: Apache-2.0
// Samples during training and at its end (task.train.sample): a few prompts continued with the
// current weights.
#pragma once

#include <memory>
#include <vector>

#include "tasks/run/decode/decode_program.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/run_log.h"

namespace tessera {

class TrainingSamples {
 public:
  // Adds programs to the session before it allocates; call `begin` after. The input provides the
  // tokenizer and outlives this.
  TrainingSamples(ModelSession& session, const BaseInput& input);
  void begin() { decoding_->begin(&text_); }

  // Collective calls. Process 0 gets the prompts with their samples.
  std::vector<DecodedExample> take();
  // Prints them, after `step` steps, and writes them to the run's log. Returns the signal at which
  // it ended early, without samples, or 0.
  int report(int64_t step, const StopSignal& stop, RunLog& log, Console& console);

 private:
  PromptText text_;
  std::vector<DecodedExample> examples_;  // Those that this process decodes.
  std::unique_ptr<Decoding> decoding_;
};

}  // namespace tessera
