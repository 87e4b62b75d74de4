// SPDX-License-Identifier: Apache-2.0
// Continues many prompts at once: rows of a finished prompt are given to the next one. The result
// is a pure function of (seed, prompt, sample index), independent of what else is in the batch, and
// of which process decodes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tasks/run/decode/generation.h"
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/task/hparams.h"

namespace tessera {

// New tokens of a row, from `position` on. A row without tokens idles: what it would write at
// `position` is discarded.
struct RowTokens {
  int64_t position = 0;
  std::span<const int32_t> ids;
  int64_t prompt = 0;  // In prefill: the number of tokens of the prompt of which these are a part.
};

// What all processes of a run do next, together. If they need different passes, the last of these
// goes first.
enum class Pass { kEnd, kStep, kReorder, kRead, kStop };

// The model as seen by decoding, for the rows that this process decides for: the logits after each
// row's latest token, computed incrementally. A row's keys, values and logits depend bitwise only
// on its own tokens.
class BaseDecodeProgram {
 public:
  virtual ~BaseDecodeProgram() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cache_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t prefill_chunk() const = 0;

  // The logits after each row's last token, ["rows vocab"], valid until the next call; those of
  // idle rows are arbitrary. `prefill` reads prompts in chunks of at most prefill_chunk tokens that
  // begin at multiples of it; `step` takes one token per row.
  virtual std::span<const float> prefill(std::span<const RowTokens> rows) = 0;
  virtual std::span<const float> step(std::span<const RowTokens> rows) = 0;
  // Row r continues from the cache of row parents[r], of the same prompt.
  virtual void reorder(std::span<const int32_t> parents) = 0;
  // A collective call: the pass that this process and the others make next.
  virtual Pass agreed(Pass wanted) { return wanted; }
};

// One continuation of a prompt, ready to show.
struct DecodedSample {
  std::vector<int32_t> ids;  // With the stop token, if any.
  std::string text;          // Without stop token and stop string.
  double log_probability = 0.0;
  double score = 0.0;
  Finish finish = Finish::kLength;
};

class Decoder {
 public:
  // The program and the text outlive the decoder.
  Decoder(BaseDecodeProgram& program, const DecodeHParams& p, const PromptText& text);

  // The samples of each prompt, in order. A prompt that is too long for the cache is an Error or
  // loses its beginning (DecodeHParams::long_prompts). A stop signal ends it early: samples are
  // then missing. `numbers` name the prompts in errors, from 0; empty: their order. A collective
  // call: each process decodes its own prompts, maybe none.
  using Samples = std::vector<std::vector<DecodedSample>>;
  Samples decode(const std::vector<std::vector<int32_t>>& prompts, const StopSignal* stop = nullptr,
                 std::span<const int64_t> numbers = {});

 private:
  // The rows of one prompt: rows_per_prompt consecutive rows.
  struct Slot {
    std::unique_ptr<BaseGeneration> generation;  // Null: free.
    size_t prompt = 0;
    size_t sample = 0;
    int64_t position = 0;         // Tokens in the cache of its rows.
    std::vector<int32_t> tokens;  // These, and those still to be read.
    bool reads = false;           // Whether `tokens` from `position` on are being read.
  };
  std::vector<int32_t> fitted(const std::vector<int32_t>& prompt, int64_t number) const;
  std::unique_ptr<BaseGeneration> start(std::vector<int32_t> prompt, int64_t sample);
  bool worth_filling(size_t waiting) const;
  Pass wanted(size_t waiting) const;
  void read_tokens();
  bool forgets() const { return window_ > 0; }
  bool is_full(const Slot& slot) const;
  void forget_older_halves();
  void step();
  void reorder();
  void advance(Slot& slot, std::span<const float> logits);
  std::span<RowTokens> rows_of(const Slot& slot);
  void idle_all();
  void collect(Samples* samples);

  BaseDecodeProgram& program_;
  DecodeHParams p_;
  StopRules stop_;
  DrawableIds drawable_;
  Sampler sampler_;
  int64_t slot_rows_;
  int64_t window_;  // 0: no limit.
  std::vector<Slot> slots_;
  std::vector<RowTokens> rows_;
};

// How often a prompt is decoded: beams of one run give all samples.
size_t runs_per_prompt(const DecodeHParams& p);

// Tokens of a row's cache that prompts of up to `longest_prompt` tokens need.
int64_t cache_needed(const DecodeHParams& p, int64_t longest_prompt);

}  // namespace tessera
