// SPDX-License-Identifier: Apache-2.0
// What --mode=decode leaves in a run's directory: decoder_out/<dataset>/step_<10 digits>.jsonl
// (docs/formats.md), whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tasks/decode/decode_examples.h"

namespace tessera {

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
