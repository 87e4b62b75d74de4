// SPDX-License-Identifier: Apache-2.0
// Generates text for the examples of an eval dataset and applies the user's predict metrics.
// Process 0 reads the dataset and has the text; all processes compute.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "tasks/decode/decode_examples.h"
#include "tasks/decode/decode_program.h"
#include "tasks/hparams.h"
#include "tasks/session/model_session.h"

namespace tessera {

class Predictions {
 public:
  // Adds programs to the session, with a cache of their own, before it allocates; then call
  // `begin`. Reads the whole dataset, even if only a part of it is scored otherwise.
  Predictions(ModelSession& session, const std::string& dataset,
              const Template<BaseInput>& input_tpl, const EvalHParams& p,
              const std::filesystem::path& run_directory);
  void begin();

  // "<predict metric>/<value>"; errors of a metric's configuration are reported here.
  static std::vector<std::string> names(const EvalHParams& p);
  // A collective call with the same result everywhere, by those names.
  std::map<std::string, double> run(ProcessGroup& processes);

 private:
  void read(const std::string& dataset, const Template<BaseInput>& input_tpl,
            const std::filesystem::path& run_directory);
  std::vector<double> score(std::vector<std::vector<DecodedSample>> samples) const;

  EvalHParams p_;
  DecodeHParams decode_;
  std::unique_ptr<BaseInput> input_;  // In process 0, as the next two.
  std::optional<PromptText> text_;
  std::vector<DecodedExample> examples_;
  std::optional<Decoding> decoding_;
};

}  // namespace tessera
