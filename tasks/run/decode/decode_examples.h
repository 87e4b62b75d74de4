// SPDX-License-Identifier: Apache-2.0
// Examples for decoding: documents of a dataset cut into prompt and reference, the model's
// continuations, and their text forms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"
#include "tasks/run/decode/decoder.h"
#include "tasks/task/hparams.h"

namespace tessera {

// A document of a dataset, or the part of it that is in one row.
struct DecodedExample {
  int64_t number = 0;  // Index in the dataset, from 0.
  std::vector<int32_t> prompt_ids;
  std::string prompt;
  std::vector<int32_t> reference_ids;  // The dataset's continuation; may be empty.
  std::string reference;
  std::vector<DecodedSample> samples;  // num_samples of them; for beam search, best first.
};

// The number of tokens of the longest prompt; 0 without examples.
int64_t longest_prompt(const std::vector<DecodedExample>& examples);

// The part of the examples that a process reads and decodes.
struct DecodeShare {
  int64_t index = 0;  // Below `count`; -1: none.
  int64_t count = 1;

  // Its part of `number` rows of a batch, or of examples; may be empty.
  RowRange range(int64_t number) const {
    return index < 0 ? RowRange() : RowRange{number * index / count, number * (index + 1) / count};
  }
  Infeed infeed(const BaseInput& input, const std::filesystem::path& directory) const;
};

// Keeps the examples of a range.
void keep_range(RowRange range, std::vector<DecodedExample>* examples);

struct ExampleSet {
  std::vector<DecodedExample> examples;  // This process's. Samples are still empty.
  int64_t total = 0;                     // The examples of all processes.
  int64_t too_short = 0;                 // Documents with an empty prompt or reference.
};

// Reads up to p.num_examples examples from an input attached with the share's infeed, of which each
// process takes those in its rows. Error if the input repeats without end or has no example. A
// collective call.
ExampleSet read_examples(BaseInput& input, const DecodeHParams& p, const PromptText& text,
                         DecodeShare share, ProcessGroup& processes);

// A collective call: moves the examples of all processes to process 0, in the order of their
// numbers.
void gather_examples(std::vector<DecodedExample>* examples, ProcessGroup& processes);

enum class SampleIds { kHidden, kShown };

// The prompt and its continuations, each with a heading, for a terminal: control characters and
// invalid bytes are escaped. kShown adds a line of ids below each text.
std::string sample_view(const DecodedExample& example, SampleIds ids = SampleIds::kHidden);

// The JSON line of one sample; in samples.jsonl it begins with the number of training steps.
std::string sample_line(const DecodedExample& example, size_t sample,
                        std::optional<int64_t> step = std::nullopt);
// One sample as Markdown for TensorBoard.
std::string sample_markdown(const DecodedExample& example);

// Writes a line for each sample (docs/formats.md) atomically, replacing the file.
void write_samples(const std::filesystem::path& file, const std::vector<DecodedExample>& examples);

}  // namespace tessera
