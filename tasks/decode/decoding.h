// SPDX-License-Identifier: Apache-2.0
// Decoding in a session: its programs and a decoder that runs them, made in two steps because an
// executor allocates once all programs are known.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tasks/decode/decode_program.h"
#include "tasks/decode/decoder.h"

namespace tessera {

class Decoding {
 public:
  // Adds programs for at most `prompts` prompts at once, each of at most `longest_prompt` tokens.
  // Several in one session have caches of different names. `keep_cast_weights`: faster, for memory
  // that training may lack. All processes call it alike.
  Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts, int64_t longest_prompt,
           const std::string& cache = "", bool keep_cast_weights = true);

  // Once the executor is allocated. `text` is the first process's alone, and outlives this.
  void begin(const PromptText* text);
  int64_t vocab_size() const { return program_.vocab_size(); }  // The model's.
  // All processes call it; the prompts are the first one's, which alone gets samples (others: {}).
  std::vector<std::vector<DecodedSample>> decode(const std::vector<std::vector<int32_t>>& prompts,
                                                 const Decoder::OnDone& on_done = {});

 private:
  DecodeHParams p_;
  DecodeProgram program_;
  std::optional<Decoder> decoder_;  // Of the first process.
};

}  // namespace tessera
