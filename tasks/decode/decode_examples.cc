// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/decode_examples.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/base/error.h"

namespace tessera {
namespace {

// A row of a batch that holds documents side by side.
struct DecodeRow {
  std::span<const int32_t> ids, labels, segments;
  std::span<const float> weights;
};

DecodeRow row_of(const Batch& batch, int64_t index) {
  const auto part = [&]<typename T>(const char* name, T) {
    const HostArray& array = batch.at(name);
    const auto size = static_cast<size_t>(array.shape.at(1));
    return std::span<const T>(array.data<T>() + static_cast<size_t>(index) * size, size);
  };
  return {part("ids", int32_t{}), part("labels", int32_t{}), part("segment_ids", int32_t{}),
          part("weights", float{})};
}

// The document at positions [begin, end) of a row: its ids and, behind the last, what is predicted
// from it. nullopt if nothing of it lies before the cut, or behind.
std::optional<DecodedExample> cut(const DecodeRow& row, size_t begin, size_t end,
                                  const DecodeHParams& p) {
  std::vector<int32_t> tokens(row.ids.begin() + static_cast<int64_t>(begin),
                              row.ids.begin() + static_cast<int64_t>(end));
  if (row.weights[end - 1] > 0.0f) tokens.push_back(row.labels[end - 1]);
  auto prompt = static_cast<size_t>(p.prompt_length);
  if (prompt == 0) {
    // The label at position i is token i + 1: the first that is scored begins the reference.
    while (begin + prompt < end && !(row.weights[begin + prompt] > 0.0f)) ++prompt;
    ++prompt;
  }
  if (prompt >= tokens.size()) return std::nullopt;
  DecodedExample example;
  example.prompt_ids.assign(tokens.begin(), tokens.begin() + static_cast<int64_t>(prompt));
  example.reference_ids.assign(tokens.begin() + static_cast<int64_t>(prompt), tokens.end());
  return example;
}

class ExampleReader {
 public:
  ExampleReader(const DecodeHParams& p, const PromptText& text) : p_(p), text_(text) {}

  bool full() const { return std::ssize(set_.examples) == p_.num_examples; }
  void read(const Batch& batch) {
    const int64_t rows = batch.at("ids").shape.at(0);
    for (int64_t index = 0; index < rows && !full(); ++index) read(row_of(batch, index));
  }
  ExampleSet take() { return std::move(set_); }

 private:
  void read(const DecodeRow& row) {
    for (size_t begin = 0, end = 0; begin < row.ids.size() && !full(); begin = end) {
      while (end < row.ids.size() && row.segments[end] == row.segments[begin]) ++end;
      if (row.segments[begin] == 0) continue;  // Padding.
      std::optional<DecodedExample> example = cut(row, begin, end, p_);
      if (!example) {
        ++set_.too_short;
        continue;
      }
      example->number = std::ssize(set_.examples);
      example->prompt = text_.text(example->prompt_ids);
      example->reference = text_.continuation(example->prompt_ids, example->reference_ids);
      set_.examples.push_back(std::move(*example));
    }
  }

  const DecodeHParams& p_;
  const PromptText& text_;
  ExampleSet set_;
};

}  // namespace

int64_t longest_prompt(const BaseInput& input, const DecodeHParams& p) {
  const int64_t longest = input.specification().at("ids").shape.at(1);
  return p.prompt_length > 0 ? std::min(p.prompt_length, longest) : longest;
}

ExampleSet read_examples(BaseInput& input, const DecodeHParams& p, const PromptText& text) {
  const Batch specification = input.specification();
  for (const char* name : {"ids", "labels", "segment_ids", "weights"})
    if (!specification.contains(name))
      fail("its batches have no '{}', so they hold no documents to decode", name);
  if (p.num_examples < 0 && input.repeats())
    fail(
        "its input repeats for ever; set task.decode.num_examples, or repeat=false or num_batches "
        "of the input");
  ExampleReader reader(p, text);
  input.reset();
  while (!reader.full()) {
    const std::optional<Batch> batch = input.get_next();
    if (!batch) break;
    reader.read(*batch);
  }
  input.reset();
  ExampleSet set = reader.take();
  if (set.examples.empty())
    fail(
        "it holds no document to decode: {} are too short to have a prompt of {} tokens and a "
        "reference behind it (task.decode.prompt_length)",
        set.too_short, p.prompt_length);
  return set;
}

}  // namespace tessera
