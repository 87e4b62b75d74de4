// SPDX-License-Identifier: Apache-2.0
// Prompts and references from a dataset: the documents of its rows, cut in two. And what decoding
// gave for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/base_input.h"
#include "tasks/decode/decode_hparams.h"
#include "tasks/decode/decoder.h"

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

}  // namespace tessera
