// SPDX-License-Identifier: Apache-2.0
// The programs of a task that decode: prefill (prompts in chunks), step (one token per row) and
// reorder (permutes rows for beam search). They share the KV cache. The prompts of a model with an
// encoder are read by that. In a run of several processes
// process 0 decides what to run and the others follow.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/run/decode/decode_examples.h"
#include "tasks/run/decode/decoder.h"
#include "tasks/run/session/model_session.h"
#include "tasks/task/hparams.h"

namespace tessera {

struct DecodeSizes {
  int64_t rows = 1;
  int64_t cache_length = 1;
  int64_t prefill_chunk = 64;  // With an encoder: the tokens that it reads.
  std::string cache;           // Its name; needed if the session has several.
  // Whether to keep weights in their compute dtype, too (see DecodeSetting).
  bool keep_cast_weights = true;
};

// Rows for up to `prompts` prompts at once: at most p.batch, a multiple of what the mesh needs.
int64_t decode_rows(const ModelSession& session, const DecodeHParams& p, int64_t prompts);

// The window of a decoder that looks back as far as in training on this input; 0: an encoder reads
// its prompts, and has no window.
int64_t trained_window(const BaseInput& input);

class DecodeProgram final : public BaseDecodeProgram {
 public:
  // Adds the programs to the session's executor, before it allocates. Error if the model cannot
  // decode incrementally.
  DecodeProgram(ModelSession& session, const DecodeSizes& sizes, DecodeStrategy strategy);

  int64_t rows() const override { return sizes_.rows; }
  int64_t cache_length() const override { return sizes_.cache_length; }
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t prefill_chunk() const override { return sizes_.prefill_chunk; }
  std::span<const float> prefill(std::span<const RowTokens> rows) override;
  std::span<const float> step(std::span<const RowTokens> rows) override;
  void reorder(std::span<const int32_t> parents) override;

  // A collective call: process 0 does `work`, the others run the same programs. Weights must not
  // change meanwhile.
  void lead_or_follow(const std::function<void()>& work);

 private:
  struct Command;
  std::span<const float> encode(std::span<const RowTokens> rows);
  std::span<const float> run_tokens(int program, int64_t seq, std::span<const RowTokens> rows);
  std::span<const float> run_tokens(Command command, int64_t seq, std::span<const RowTokens> rows);
  void send(const Command& command);
  void obey(const Command& command);
  void write(int program, std::string_view name, std::span<const int32_t> values, int64_t width);

  Executor& executor_;
  ProcessGroup& processes_;
  DecodeSizes sizes_;
  // With an encoder: the decoder's first token, and for each row by how many tokens the
  // prompt, which the decoder does not read, was longer than that.
  std::optional<int32_t> start_id_;
  std::vector<int64_t> before_;
  int64_t vocab_size_ = 0;
  int prefill_ = 0, step_ = 0;
  std::optional<int> cast_weights_;  // If a weight needs a cast.
  std::optional<int> reorder_;       // For beam search.
  std::vector<float> logits_;
};

// Decoding in a session: programs and the decoder that runs them. Constructed in two steps, because
// the executor allocates only when all programs are known.
class Decoding {
 public:
  // Adds programs for up to `prompts` prompts at once of up to `longest_prompt` tokens. Several in
  // one session need caches of different names. `keep_cast_weights` is faster but needs memory for
  // copies of the weights. All processes pass the same arguments.
  Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts, int64_t longest_prompt,
           const std::string& cache = "", bool keep_cast_weights = true);

  // Call it after the executor allocated. Only process 0 needs `text`, which outlives this.
  void begin(const PromptText* text);
  int64_t vocab_size() const { return program_.vocab_size(); }  // The model's.
  // A collective call: continues the examples' prompts and sets their samples. Only those of
  // process 0 are used. Returns the signal at which it ended early, with samples missing, or 0.
  int decode(std::vector<DecodedExample>* examples, const StopSignal* stop = nullptr);

 private:
  DecodeHParams p_;
  ProcessGroup& processes_;
  DecodeProgram program_;
  std::optional<Decoder> decoder_;  // In process 0.
};

}  // namespace tessera
