// SPDX-License-Identifier: Apache-2.0
// The programs of a task that decode: prefill (prompts in chunks), step (one token per row) and
// reorder (permutes rows for beam search). They share the KV cache. The prompts of a model with an
// encoder are read by that. All processes run the same programs. Each decides for rows that its
// devices hold, and decodes a share of the prompts there; process 0 gets the results.
#pragma once

#include <cstdint>
#include <map>
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
  int64_t rows_per_prompt = 1;
  int64_t cache_length = 1;
  int64_t prefill_chunk = 64;  // With an encoder: the tokens that it reads.
  std::string cache;           // Its name; needed if the session has several.
  // Whether to keep weights in their compute dtype, too (see DecodeSetting).
  bool keep_cast_weights = true;
};

// The part of the examples that this process decodes. Of the processes that hold the same rows it
// is the first that decodes.
DecodeShare decode_share(const ModelSession& session);

// Rows for up to `prompts` prompts at once: p.batch, but a whole number of prompts for each part of
// the batch, one or more.
int64_t decode_rows(const ModelSession& session, const DecodeHParams& p, int64_t prompts);

// The window of a decoder that looks back as far as in training on this input; 0: an encoder reads
// its prompts, and has no window.
int64_t trained_window(const BaseInput& input);

class DecodeProgram final : public BaseDecodeProgram {
 public:
  // Adds the programs to the session's executor, before it allocates. Error if the model cannot
  // decode incrementally.
  DecodeProgram(ModelSession& session, const DecodeSizes& sizes);

  int64_t rows() const override { return std::ssize(own_rows()); }
  int64_t cache_length() const override { return sizes_.cache_length; }
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t prefill_chunk() const override { return sizes_.prefill_chunk; }
  std::span<const float> prefill(std::span<const RowTokens> rows) override;
  std::span<const float> step(std::span<const RowTokens> rows) override;
  void reorder(std::span<const int32_t> parents) override;
  Pass agreed(Pass wanted) override;

  // A collective call, needed when weights have changed.
  void cast_weights();

 private:
  // Values for all rows, of which other processes' may be missing, by the input's name.
  using RowInputs = std::map<std::string_view, std::vector<int32_t>>;
  std::span<const float> encode(std::span<const RowTokens> rows);
  std::span<const float> run_tokens(int program, int64_t seq, std::span<const RowTokens> rows,
                                    RowInputs inputs = {});
  void run(int program, RowInputs inputs);
  void exchange(RowInputs* inputs);
  void write(int program, std::string_view name, std::span<const int32_t> values);
  const std::vector<int64_t>& own_rows() const {
    return rows_of_process_[static_cast<size_t>(processes_.rank())];
  }

  Executor& executor_;
  ProcessGroup& processes_;
  DecodeSizes sizes_;
  bool is_shared_ = false;  // Whether any process holds rows that another one decides for.
  std::vector<std::vector<int64_t>> rows_of_process_;  // The rows that each decides for.
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
  // one session need caches of different names. The prompts are those of all processes.
  // `keep_cast_weights` is faster but needs memory for
  // copies of the weights. All processes pass the same arguments.
  Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts, int64_t longest_prompt,
           const std::string& cache = "", bool keep_cast_weights = true);

  // Call it after the executor allocated. `text` outlives this.
  void begin(const PromptText* text);
  int64_t vocab_size() const { return program_.vocab_size(); }  // The model's.
  // A collective call: continues the prompts of each process's examples and sets their samples.
  // Then process 0 has the examples of all processes, by number, and the others none. Returns the
  // signal at which it ended early, with samples missing, or 0.
  int decode(std::vector<DecodedExample>* examples, const StopSignal* stop = nullptr);

 private:
  DecodeHParams p_;
  ProcessGroup& processes_;
  DecodeProgram program_;
  std::optional<Decoder> decoder_;
};

}  // namespace tessera
