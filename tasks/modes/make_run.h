// SPDX-License-Identifier: Apache-2.0
// Makes the run of a configuration and the options of one mode. make_run picks among the modes' own
// functions by the type of the options; those of --mode=train and plan are in
// tasks/train/trainer.h, that of --mode=import in tasks/modes/import.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_setting.h"
#include "tasks/modes/import.h"
#include "tasks/train/trainer.h"

namespace tessera {

struct EvalOptions {
  CheckpointChoice checkpoint;
};

struct DecodeOptions {
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;     // None: the decode datasets.
  std::vector<std::string> prompt_ids;  // Prompts as token ids: "1 2 3".
  bool print_ids = false;               // Print ids of prompts and continuations.
};

struct ExportOptions {
  CheckpointChoice checkpoint;
  std::filesystem::path output;             // The directory that is written,
  std::string dtype = "f32";                // in this dtype: f32, bf16, f16 or f64,
  int64_t max_shard_bytes = 5'000'000'000;  // with at most so many bytes of weights per file.
};

using ModeOptions = std::variant<TrainOptions, EvalOptions, DecodeOptions, PlanOptions,
                                 ImportOptions, ExportOptions>;

// An Error from here is a wrong configuration, found before step 0 (exit code 2); one from
// BaseRun::run is a failed run (exit code 1). With several processes the caller tells the others
// (ProcessGroup::fail_together).
//
// The devices are those of this process, in the order of their numbers: setting.devices of them, or
// one for a plan. They and the processes outlive the run. Only process 0 writes to the run's
// directory and to the console.
std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunSetting& setting,
                                  const ModeOptions& options, const std::vector<Device*>& devices,
                                  ProcessGroup& processes);

// --mode=eval: scores checkpoints of a run, which may be training at the same time. It reads the
// run's directory without a lock and writes eval_out/ there. Evaluation during training uses the
// same code (tasks/eval/evaluation.h). The exit code is 0 also when a signal stopped it. Error,
// after everything is scored, if a loss was not finite.
std::unique_ptr<BaseRun> eval_run(const ExperimentConfig& config, const RunSetting& setting,
                                  const EvalOptions& options, const std::vector<Device*>& devices,
                                  ProcessGroup& processes);

// --mode=decode: continues prompts, or documents of datasets, with the weights of a checkpoint. It
// reads the run's directory without a lock and writes decoder_out/ there.
std::unique_ptr<BaseRun> decode_run(const ExperimentConfig& config, const RunSetting& setting,
                                    const DecodeOptions& options,
                                    const std::vector<Device*>& devices, ProcessGroup& processes);

// --mode=export: writes a run's checkpoint as a Hugging Face directory, tensor by tensor, whatever
// mesh saved it; needs no device. Writes options.output: model.safetensors (or shards with an
// index), config.json, tessera_export.json, and the tokenizer files if the run has a Hugging Face
// tokenizer. The directory appears by one rename. A directory with other files than those of an
// earlier export is refused. Only process 0 works. The configuration outlives the run.
std::unique_ptr<BaseRun> export_run(const ExperimentConfig& config, const RunSetting& setting,
                                    const ExportOptions& options, const ProcessGroup& processes);

}  // namespace tessera
