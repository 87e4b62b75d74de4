// SPDX-License-Identifier: Apache-2.0
// A task's programs that decode, on an executor: one reads prompts in chunks, one takes a token a
// row, and one exchanges rows for beam search. They share the cache of keys and values. In a run of
// several processes the first leads and the others follow it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/decode/decoder.h"
#include "tasks/decode_hparams.h"
#include "tasks/session/model_session.h"

namespace tessera {

struct DecodeSizes {
  int64_t rows = 1;
  int64_t cache_length = 1;
  int64_t prefill_chunk = 64;
  std::string cache;  // Its name, where the session has several.
  // Whether weights are kept in the dtype they are computed in, too (see DecodeSetting).
  bool keep_cast_weights = true;
};

// Rows for `prompts` prompts at once, at most p.batch, in a number that the mesh divides.
int64_t decode_rows(const ModelSession& session, const DecodeHParams& p, int64_t prompts);

class DecodeProgram final : public BaseDecodeProgram {
 public:
  // Adds its programs to the session's executor, which is allocated before any is run. Error if the
  // model cannot decode.
  DecodeProgram(ModelSession& session, const DecodeSizes& sizes, DecodeStrategy strategy);

  int64_t rows() const override { return sizes_.rows; }
  int64_t cache_length() const override { return sizes_.cache_length; }
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t prefill_chunk() const override { return sizes_.prefill_chunk; }
  std::span<const float> prefill(std::span<const RowTokens> rows) override;
  std::span<const float> step(std::span<const RowTokens> rows) override;
  void reorder(std::span<const int32_t> parents) override;

  // All processes call it: the first does `work`, the others run what it runs. Weights are as they
  // were when it began.
  void lead_or_follow(const std::function<void()>& work);

 private:
  struct Command;
  std::span<const float> run_tokens(int program, int64_t seq, std::span<const RowTokens> rows);
  void send(const Command& command);
  bool follow_one();
  void obey(const Command& command);
  void write(int program, std::string_view name, std::span<const int32_t> values, int64_t width);

  Executor& executor_;
  ProcessGroup& processes_;
  DecodeSizes sizes_;
  int64_t vocab_size_ = 0;
  int prefill_ = 0, step_ = 0;
  std::optional<int> cast_weights_;  // If any are.
  std::optional<int> reorder_;       // If beams are searched.
  std::vector<float> logits_;
};

// Decoding in a session: its programs and a decoder that runs them, made in two steps because an
// executor allocates once all programs are known.
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
