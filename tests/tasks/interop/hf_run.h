// SPDX-License-Identifier: Apache-2.0
// Helpers of these tests: models in Hugging Face format, imported, exported and scored.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/io/safetensors.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/interop/hf_model.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/run_with.h"

namespace tessera {

// tests/golden/hugging_face/<name>, written by tests/golden/hugging_face.py.
std::filesystem::path hf_golden(const std::string& name);
std::vector<std::string> hf_golden_names();
HfConfig hf_golden_config(const std::string& name);
// The dtype of a golden's tensors, as our dtype name.
std::string hf_dtype(const std::string& golden);

// An experiment with this model, on synthetic tokens of its vocabulary, with seq = 20.
ExperimentConfig hf_experiment(const LanguageModel::HParams& model);
// An experiment with the model of a golden config.json.
ExperimentConfig hf_experiment(const std::string& golden, StackStyle stack = StackStyle::kUnrolled);
TransformerBlock::HParams& block_of(ExperimentConfig& config);
TransformerLm::HParams& lm_of(ExperimentConfig& config);

// Runs options.mode as one of several processes.
int run_hf(const ExperimentConfig& config, RunWith options, ProcessGroup& processes);
// --mode=import and --mode=export, on options.devices devices.
void import_hf(const ExperimentConfig& config, const std::filesystem::path& input,
               const std::filesystem::path& run, RunWith options = {});
void export_hf(const ExperimentConfig& config, const std::filesystem::path& run,
               const std::filesystem::path& output, RunWith options = {});
// Trains for `steps` steps and saves a checkpoint.
void train_hf(ExperimentConfig config, const std::filesystem::path& run, int64_t steps);

// One pass of `rows` with the weights of a run's newest checkpoint.
struct HfPass {
  std::vector<float> logits;                            // f32["batch seq vocab"]
  std::map<std::string, std::vector<float>> gradients;  // d(mean loss of the labels).
};
enum class Backward { kNo, kYes };
// `documents`: lengths of the documents in each row, with positions from 0; none: one each.
// `labels`: of a masked model, negative where none counts; none: the next tokens. `encoder`: what
// the encoder reads, if there is one.
struct HfEncoderRows {
  std::vector<std::vector<int32_t>> ids;
  std::vector<int64_t> documents = {};
};
HfPass pass_of(const ExperimentConfig& config, const std::filesystem::path& run,
               const std::vector<std::vector<int32_t>>& rows, Backward backward,
               const std::vector<int64_t>& documents = {},
               const std::vector<std::vector<int32_t>>& labels = {},
               const HfEncoderRows& encoder = {});
// The logits alone.
std::vector<float> logits_of(const ExperimentConfig& config, const std::filesystem::path& run,
                             const std::vector<std::vector<int32_t>>& rows,
                             const HfEncoderRows& encoder = {});

// Continues these prompts greedily by `steps` tokens.
std::vector<std::vector<int32_t>> decoded(const ExperimentConfig& config,
                                          const std::filesystem::path& run,
                                          const std::vector<std::vector<int32_t>>& prompts,
                                          int64_t steps, int64_t prefill_chunk = 64);

// Changes each block of a stack, also in loops.
void for_each_block(Template<SequenceLayer>& layer_tpl,
                    const std::function<void(TransformerBlock::HParams&)>& change);

struct HfScores {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<int32_t>> labels;  // None: the next tokens.
  std::vector<float> logits;
  // The largest difference between the library's two forms of linear attention, relative to the
  // largest element: of logits, and of gradients of a weight.
  std::vector<float> spread = {0.0f, 0.0f};
  std::vector<std::vector<int32_t>> encoder_ids, generated;  // Empty without an encoder.
  // Prompts of 5 and 24 tokens, continued; empty unless rotations depend on the length.
  std::vector<std::vector<int32_t>> continued;
};
HfScores read_scores(const std::filesystem::path& directory);
void write_scores(const std::filesystem::path& directory, const HfScores& scores);

std::vector<float> tensor_values(const SafetensorsModel& model, const std::string& name);
// Names, dtypes, shapes and values of all tensors of two directories.
void require_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b);

// The largest absolute difference of two lists of equal length.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tessera
