// SPDX-License-Identifier: Apache-2.0
// Continues prompts, many at once: a finished prompt's rows of the batch take the next one. What a
// prompt gives is a pure function of (seed, prompt, sample index), whatever is decoded beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tasks/decode/generation.h"
#include "tasks/decode/prompt_text.h"
#include "tasks/decode_hparams.h"

namespace tessera {

// New tokens of a row, at `position` and after. A row without any idles: what is at `position` and
// after is not kept.
struct RowTokens {
  int64_t position = 0;
  std::span<const int32_t> ids;
};

// The model as decoding sees it: the logits after each row's latest token, computed incrementally.
// A row's keys and values depend on its own tokens alone, and so do its logits, to the bit.
class BaseDecodeProgram {
 public:
  virtual ~BaseDecodeProgram() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cache_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t prefill_chunk() const = 0;

  // The logits after each row's last token, ["rows vocab"], until the next call. Rows that idle get
  // some logits too. Prompts are read in chunks from a multiple of prefill_chunk on, of at most so
  // many tokens; what is generated goes through `step`, one token a row.
  virtual std::span<const float> prefill(std::span<const RowTokens> rows) = 0;
  virtual std::span<const float> step(std::span<const RowTokens> rows) = 0;
  // Row r goes on from what row parents[r] holds.
  virtual void reorder(std::span<const int32_t> parents) = 0;
};

// One of a prompt's continuations, as it is shown.
struct DecodedSample {
  std::vector<int32_t> ids;  // A stop token at its end included.
  std::string text;          // Without stop token and stop string.
  double log_probability = 0.0;
  double score = 0.0;
  Finish finish = Finish::kLength;
};

class Decoder {
 public:
  // The program and the text outlive the decoder.
  Decoder(BaseDecodeProgram& program, const DecodeHParams& p, const PromptText& text);

  // The samples of each prompt, in the order given. A prompt that is too long for the cache is an
  // Error or loses its beginning (DecodeHParams::long_prompts). `on_done` hears how many samples
  // are done.
  using OnDone = std::function<void(int64_t)>;
  std::vector<std::vector<DecodedSample>> decode(const std::vector<std::vector<int32_t>>& prompts,
                                                 const OnDone& on_done = {});
  // Steps and prefills that were run, for reports.
  int64_t steps_run() const { return steps_run_; }

 private:
  // A prompt's share of the rows: rows_per_prompt consecutive ones.
  struct Slot {
    std::unique_ptr<BaseGeneration> generation;  // Null: free.
    size_t prompt = 0;
    int64_t sample = 0;
    int64_t position = 0;         // Tokens its rows hold.
    std::vector<int32_t> tokens;  // Those, and what it reads.
    bool reads = false;           // `tokens`, from position on.
  };
  std::vector<int32_t> fitted(const std::vector<int32_t>& prompt, size_t number) const;
  std::unique_ptr<BaseGeneration> start(std::vector<int32_t> prompt, int64_t sample);
  bool worth_filling(size_t waiting) const;
  void read_tokens();
  bool forgets() const { return window_ > 0; }
  bool forget_older_halves();
  void step();
  void reorder();
  void advance(Slot& slot, std::span<const float> logits);
  std::span<RowTokens> rows_of(const Slot& slot);
  void idle_all();
  std::vector<DecodedSample> collect(Slot& slot);

  BaseDecodeProgram& program_;
  DecodeHParams p_;
  StopRules stop_;
  DrawableIds drawable_;
  Sampler sampler_;
  int64_t slot_rows_;
  int64_t window_;  // 0: none.
  std::vector<Slot> slots_;
  std::vector<RowTokens> rows_;
  int64_t steps_run_ = 0;
};

// Tokens of a row's cache that prompts of up to `longest_prompt` tokens take.
int64_t cache_needed(const DecodeHParams& p, int64_t longest_prompt);

}  // namespace tessera
