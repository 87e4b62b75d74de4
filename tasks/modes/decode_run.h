// SPDX-License-Identifier: Apache-2.0
// --mode=decode: continues prompts, or documents of datasets, with the weights of a checkpoint. It
// reads the run's directory without a lock and writes decoder_out/ there.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"
#include "tasks/decode/decode_examples.h"
#include "tasks/decode/decode_program.h"
#include "tasks/logging/console.h"

namespace tessera {

class DecodeRun final : public BaseRun {
 public:
  // Arguments as of make_run.
  DecodeRun(const ExperimentConfig& config, const RunOptions& options,
            const std::vector<Device*>& devices, ProcessGroup& processes);
  int run() override;

 private:
  // What is decoded; only process 0 knows it.
  struct Dataset {
    std::string name;  // "": the prompts of the command line.
    std::vector<DecodedExample> examples;
  };
  void look_back_as_trained(const ExperimentConfig& config);
  void choose_checkpoint();
  void find_text(const ExperimentConfig& config);
  bool has_prompts() const { return !options_.prompts.empty() || !options_.prompt_ids.empty(); }
  void take_prompts();
  void check_prompt_ids();
  void read_datasets(const ExperimentConfig& config);
  void read_dataset(const std::string& name, const Template<BaseInput>& input_tpl,
                    std::string_view field);
  void compile();
  void decode(Dataset& dataset);
  void show(const Dataset& dataset);

  RunOptions options_;
  ProcessGroup& processes_;
  ModelSession session_;
  DecodeHParams p_;
  CheckpointStore store_;
  Console console_;
  int64_t step_ = 0;  // Step of the checkpoint.
  std::unique_ptr<Tokenizer> kept_tokenizer_;
  std::unique_ptr<BaseInput> input_;  // The training input, if its tokenizer is needed.
  std::optional<PromptText> text_;
  std::vector<Dataset> datasets_;
  std::optional<Decoding> decoding_;
};

}  // namespace tessera
