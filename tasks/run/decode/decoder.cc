// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decoder.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace tessera {
namespace {

// A token that ends a continuation can be drawn even if the tokenizer excludes it.
DrawableIds drawable_ids(const PromptText& text, const StopRules& stop, int64_t vocab_size) {
  DrawableIds drawable = text.drawable_ids(vocab_size);
  for (const int32_t id : stop.tokens()) drawable[static_cast<size_t>(id)] = 1;
  return drawable;
}

}  // namespace

// The last token is never read, so it needs no place in the cache.
int64_t cache_needed(const DecodeHParams& p, int64_t longest_prompt) {
  if (p.cache_length > 0) return p.cache_length;
  const int64_t all = longest_prompt + p.max_decode_steps - 1;
  return p.window > 0 ? std::min(p.window, all) : all;
}

size_t runs_per_prompt(const DecodeHParams& p) {
  return static_cast<size_t>(p.strategy == DecodeStrategy::kBeam ? 1 : p.num_samples);
}

Decoder::Decoder(BaseDecodeProgram& program, const DecodeHParams& p, const PromptText& text)
    : program_(program),
      p_(p),
      stop_(p, text),
      drawable_(drawable_ids(text, stop_, program.vocab_size())),
      sampler_({p.strategy == DecodeStrategy::kGreedy ? 0.0 : p.temperature, p.top_k, p.top_p},
               drawable_),
      slot_rows_(rows_per_prompt(p)),
      window_(p.window > 0 ? std::min(p.window, program.cache_length()) : 0),
      slots_(static_cast<size_t>(program.rows() / slot_rows_)),
      rows_(static_cast<size_t>(program.rows())) {
  CHECK(program.rows() == 0 || !slots_.empty(), "a prompt takes {} rows, more than {}", slot_rows_,
        program.rows());
}

std::vector<int32_t> Decoder::fitted(const std::vector<int32_t>& prompt, int64_t number) const {
  CHECK(!prompt.empty());
  const auto size = static_cast<int64_t>(prompt.size());
  const int64_t room = forgets() ? window_ : program_.cache_length() - p_.max_decode_steps + 1;
  if (size <= room) return prompt;
  if (p_.long_prompts == LongPrompts::kTruncate) return {prompt.end() - room, prompt.end()};
  if (forgets())
    fail(
        "prompt {} has {} tokens, but attention covers only {} (window). Set "
        "task.decode.window={}, "
        "which may be more than the model was trained for, or task.decode.long_prompts=truncate, "
        "which drops the beginning of a prompt",
        number + 1, size, window_, size);
  fail(
      "prompt {} has {} tokens; with max_decode_steps={} a cache of {} tokens has room for {}. Set "
      "task.decode.cache_length={}, decode fewer steps, or set task.decode.long_prompts=truncate, "
      "which drops the beginning of a prompt",
      number + 1, size, p_.max_decode_steps, program_.cache_length(), room,
      size + p_.max_decode_steps - 1);
}

std::unique_ptr<BaseGeneration> Decoder::start(std::vector<int32_t> prompt, int64_t sample) {
  if (p_.strategy == DecodeStrategy::kBeam)
    return std::make_unique<BeamSearch>(std::move(prompt), p_, drawable_, stop_);
  const uint64_t key = sample_key(static_cast<uint64_t>(p_.seed), prompt, sample);
  return std::make_unique<SampledGeneration>(std::move(prompt), p_.max_decode_steps, key, sampler_,
                                             stop_);
}

// A prefill runs all rows through the model, so it waits until several rows are free, or as many as
// there are prompts left.
bool Decoder::worth_filling(size_t waiting) const {
  const auto free = static_cast<size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.generation == nullptr; }));
  const size_t enough = std::max<size_t>(1, slots_.size() / 4);
  return waiting > 0 && free >= std::min(enough, waiting);
}

bool Decoder::is_full(const Slot& slot) const {
  return forgets() && slot.generation && slot.position >= window_;
}

Pass Decoder::wanted(size_t waiting) const {
  const auto any = [&](auto is) { return std::ranges::any_of(slots_, is); };
  if (worth_filling(waiting) || any([&](const Slot& slot) { return is_full(slot); }))
    return Pass::kRead;
  const bool busy = any([](const Slot& slot) { return slot.generation != nullptr; });
  return busy ? Pass::kStep : Pass::kEnd;
}

Decoder::Samples Decoder::decode(const std::vector<std::vector<int32_t>>& prompts,
                                 const StopSignal* stop, std::span<const int64_t> numbers) {
  const size_t runs = runs_per_prompt(p_);
  std::vector<std::vector<int32_t>> fitting;
  for (size_t i = 0; i < prompts.size(); ++i)
    fitting.push_back(fitted(prompts[i], numbers.empty() ? static_cast<int64_t>(i) : numbers[i]));
  Samples samples(prompts.size(), std::vector<DecodedSample>(runs));

  const size_t total = prompts.size() * runs;
  size_t begun = 0;
  const auto fill = [&](Slot& slot) {
    if (slot.generation || begun == total) return;
    slot = {.prompt = begun / runs, .sample = begun % runs, .reads = true};
    slot.generation = start(fitting[slot.prompt], static_cast<int64_t>(slot.sample));
    slot.tokens = slot.generation->prompt();
    ++begun;
  };
  for (;;) {
    const bool stops = stop != nullptr && stop->requested() != 0;
    const Pass pass = program_.agreed(stops ? Pass::kStop : wanted(total - begun));
    if (pass == Pass::kStop) std::ranges::for_each(slots_, [](Slot& slot) { slot = {}; });
    if (pass == Pass::kStop || pass == Pass::kEnd) return samples;
    if (pass == Pass::kRead) {
      std::ranges::for_each(slots_, fill);
      forget_older_halves();
      read_tokens();
    } else {
      step();
    }
    collect(&samples);
  }
}

std::span<RowTokens> Decoder::rows_of(const Slot& slot) {
  const auto number = static_cast<size_t>(&slot - slots_.data());
  return std::span(rows_).subspan(number * static_cast<size_t>(slot_rows_),
                                  static_cast<size_t>(slot_rows_));
}

void Decoder::idle_all() {
  std::fill(rows_.begin(), rows_.end(), RowTokens{});
  for (const Slot& slot : slots_)
    if (slot.generation)
      for (RowTokens& row : rows_of(slot)) row.position = slot.position;
}

// Chunks begin at multiples of the chunk's length, so that a prompt is always read in the same
// pieces.
void Decoder::read_tokens() {
  const int64_t chunk = program_.prefill_chunk();
  for (int64_t begin = 0;; begin += chunk) {
    idle_all();
    bool reads = false;
    for (const Slot& slot : slots_) {
      if (!slot.reads) continue;
      reads = true;
      const std::span<const int32_t> tokens = slot.tokens;
      const int64_t left = std::ssize(tokens) - begin;
      for (RowTokens& row : rows_of(slot)) {
        row.ids =
            tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(chunk, left)));
        row.prompt = std::ssize(tokens);
      }
    }
    if (program_.agreed(reads ? Pass::kRead : Pass::kEnd) == Pass::kEnd) return;
    const std::span<const float> logits = program_.prefill(rows_);
    for (Slot& slot : slots_) {
      if (!slot.reads) continue;
      slot.position += std::ssize(rows_of(slot).front().ids);
      slot.reads = slot.position < std::ssize(slot.tokens);
      if (!slot.reads) advance(slot, logits);
    }
  }
}

// Full rows drop the older half of their tokens and read the rest again from position 0.
void Decoder::forget_older_halves() {
  for (Slot& slot : slots_) {
    if (!is_full(slot)) continue;
    slot.tokens.push_back(slot.generation->next_ids().front());
    const int64_t kept = std::max<int64_t>(1, window_ / 2);
    slot.tokens.erase(slot.tokens.begin(), slot.tokens.end() - kept);
    slot.position = 0;
    slot.reads = true;
  }
}

void Decoder::step() {
  if (slot_rows_ > 1) reorder();
  idle_all();
  for (const Slot& slot : slots_) {
    if (!slot.generation) continue;
    const std::vector<int32_t>& next = slot.generation->next_ids();
    const std::span<RowTokens> rows = rows_of(slot);
    for (size_t i = 0; i < next.size(); ++i) rows[i].ids = std::span(next).subspan(i, 1);
  }
  const std::span<const float> logits = program_.step(rows_);
  for (Slot& slot : slots_) {
    if (!slot.generation) continue;
    ++slot.position;
    if (forgets()) slot.tokens.push_back(slot.generation->next_ids().front());
    advance(slot, logits);
  }
}

void Decoder::reorder() {
  std::vector<int32_t> parents(rows_.size());
  std::iota(parents.begin(), parents.end(), 0);
  bool moves = false;
  for (const Slot& slot : slots_) {
    // After the prompt all rows are equal.
    if (!slot.generation || slot.position == std::ssize(slot.generation->prompt())) continue;
    const auto first = static_cast<int32_t>(rows_of(slot).data() - rows_.data());
    const std::vector<int32_t>& wanted = slot.generation->parents();
    for (size_t i = 0; i < wanted.size(); ++i) {
      parents[static_cast<size_t>(first) + i] = first + wanted[i];
      moves = moves || wanted[i] != static_cast<int32_t>(i);
    }
  }
  if (program_.agreed(moves ? Pass::kReorder : Pass::kEnd) == Pass::kReorder)
    program_.reorder(parents);
}

void Decoder::advance(Slot& slot, std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(program_.vocab_size());
  const auto first = static_cast<size_t>(rows_of(slot).data() - rows_.data());
  RowLogits of_rows;
  for (size_t i = 0; i < static_cast<size_t>(slot_rows_); ++i)
    of_rows.push_back(logits.subspan((first + i) * vocab, vocab));
  slot.generation->advance(of_rows);
}

// Takes what finished slots made.
void Decoder::collect(Samples* samples) {
  for (Slot& slot : slots_) {
    if (!slot.generation || !slot.generation->done()) continue;
    std::vector<DecodedSample>& of_prompt = (*samples)[slot.prompt];
    size_t place = slot.sample;
    for (Continuation& each : slot.generation->take()) {
      of_prompt.resize(std::max(of_prompt.size(), place + 1));
      const std::string text = stop_.shown(slot.generation->prompt(), each.ids, each.finish);
      of_prompt[place++] = {std::move(each.ids), text, each.log_probability, each.score,
                            each.finish};
    }
    slot.generation.reset();
  }
}

}  // namespace tessera
