// SPDX-License-Identifier: Apache-2.0
// What a run stores about itself: hparams.toml, the configuration with which it began, and its
// tokenizer. Resuming with a different configuration is an error unless it is allowed. And the runs
// at and near a path that a user gave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/tree.h"
#include "inputs/tokenizers/tokenizer.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// Whether the run in this directory has made a step. Before that its configuration may change.
bool run_has_begun(const std::filesystem::path& run_directory);

// Parses the text of an hparams.toml. Errors begin with `name`, which says where the text is from.
ExperimentConfig parse_config(std::string_view text, const std::string& name);

// task.train.num_train_steps of a configuration; 0 if its task has no such field.
int64_t num_train_steps(const Tree& config);

// Writes hparams.toml if the run has not begun, or is restarted. If it has begun with a
// different configuration: Error with the differences, unless changes are allowed. Trackers may
// change, and a finished run may be extended (num_train_steps), without permission. A dry run only
// checks. Returns the text.
std::string prepare_config(const ExperimentConfig& config, const RunSetting& setting);
// Writes a changed hparams.toml of a run that has begun, once its checkpoint has been read.
void keep_config(const std::string& text, const RunSetting& setting);

// The differences between two texts of hparams.toml but for trackers, on one line; "" if they are
// equal.
std::string describe_change(const std::string& before, const std::string& now);

// For a reader of a checkpoint with this text of hparams.toml: the line that says how the model of
// `now` is configured differently from the one that was trained; "" if it is not.
std::string note_of_model_change(const std::string& trained, const ExperimentConfig& now,
                                 int64_t step);

// <run>/tokenizer: the tokenizer's name and its definition, so that decoding needs no data.
void write_run_tokenizer(const std::filesystem::path& run_directory, const Tokenizer& tokenizer);
// Null if the run has not stored one. Error if the file is damaged.
std::unique_ptr<Tokenizer> read_run_tokenizer(const std::filesystem::path& run_directory);

// Whether the directory has hparams.toml or metrics.jsonl.
bool is_run(const std::filesystem::path& directory);

// Runs in this directory and, with more `levels`, in its folders, by name; at most `most`.
std::vector<std::filesystem::path> runs_below(const std::filesystem::path& directory, size_t most,
                                              int levels = 2);

// The runs directly in a folder, such as that of a sweep, by name. The directory itself if it is a
// run or has none.
std::vector<std::filesystem::path> runs_of(const std::filesystem::path& directory);

// "; did you mean 'char_lm'?" for a run beside `directory` whose name is near; or "".
std::string did_you_mean_run(const std::filesystem::path& directory);

}  // namespace tessera
