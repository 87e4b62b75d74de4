// SPDX-License-Identifier: Apache-2.0
// Prompts and references from a dataset: the documents of its rows, cut in two. And what decoding
// gave for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inputs/base_input.h"
#include "tasks/decode/decoder.h"
#include "tasks/decode_hparams.h"

namespace tessera {

// A document of a dataset, or the part of it that a row holds.
struct DecodedExample {
  int64_t number = 0;  // In the order of the dataset, from 0.
  std::vector<int32_t> prompt_ids;
  std::string prompt;
  std::vector<int32_t> reference_ids;  // What the dataset goes on with; may be empty.
  std::string reference;
  std::vector<DecodedSample> samples;  // num_samples of them, the best first if beams are searched.
};

struct ExampleSet {
  std::vector<DecodedExample> examples;  // Without samples, as yet.
  int64_t too_short = 0;                 // Documents with nothing before or behind the cut.
};

// The longest prompt that a dataset can give, known before it is read.
int64_t longest_prompt(const BaseInput& input, const DecodeHParams& p);

// Reads an input that holds the whole dataset from its beginning, for p.num_examples examples or to
// its end. Error if there is no end, or no example.
ExampleSet read_examples(BaseInput& input, const DecodeHParams& p, const PromptText& text);

// A prompt and its continuations as a person reads them. Files have decoder_out.h.

enum class SampleIds { kHidden, kShown };

// The prompt and its continuations, each under a heading. Control characters and invalid bytes are
// escaped. kShown: with a line of ids beneath each text that is not ids itself.
std::string sample_view(const DecodedExample& example, SampleIds ids = SampleIds::kHidden);

// What --mode=decode leaves in a run's directory: decoder_out/<dataset>/step_<10 digits>.jsonl
// (docs/formats.md), whole or not at all.

// The line of one sample.
std::string decoder_line(const DecodedExample& example, size_t sample);

// The same in samples.jsonl, after `step` steps of training, and as a page of TensorBoard.
std::string sample_line(int64_t step, const DecodedExample& example, size_t sample);
std::string sample_markdown(const DecodedExample& example);

// Returns the file that it wrote; one of the same step is replaced.
std::filesystem::path write_decoder_out(const std::filesystem::path& run_directory,
                                        const std::string& dataset, int64_t step,
                                        const std::vector<DecodedExample>& examples);

}  // namespace tessera
