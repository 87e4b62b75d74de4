// SPDX-License-Identifier: Apache-2.0
// What the model generates for the examples of an eval dataset, and what a user's metrics make of
// it. The first process reads the dataset and has the text; all of them compute.
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
#include "tasks/eval_hparams.h"
#include "tasks/session/model_session.h"

namespace tessera {

class Predictions {
 public:
  // Adds programs to the session, with a cache of their own; when its executor is allocated,
  // `begin`. The dataset is read whole, whatever part of it is scored otherwise.
  Predictions(ModelSession& session, const std::string& dataset,
              const Template<BaseInput>& input_tpl, const EvalHParams& p,
              const std::filesystem::path& run_directory);
  void begin();

  // "<predict metric>/<value>"; what is wrong with a metric is said here.
  static std::vector<std::string> names(const EvalHParams& p);
  // All processes call it together and get the same, by those names.
  std::map<std::string, double> run(ProcessGroup& processes);

 private:
  void read(const std::string& dataset, const Template<BaseInput>& input_tpl,
            const std::filesystem::path& run_directory);
  std::vector<double> score(std::vector<std::vector<DecodedSample>> samples) const;

  EvalHParams p_;
  DecodeHParams decode_;
  std::unique_ptr<BaseInput> input_;  // Of the first process, as are the next two.
  std::optional<PromptText> text_;
  std::vector<DecodedExample> examples_;
  std::optional<Decoding> decoding_;
};

}  // namespace tessera
