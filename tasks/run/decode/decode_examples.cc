// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decode_examples.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/session/batch_check.h"

namespace tessera {
namespace {

// A row of a batch with packed documents.
struct DecodeRow {
  std::span<const int32_t> ids, labels, segments;
  std::span<const float> weights;
};

template <typename T>
std::span<const T> part_of(const Batch& batch, const char* name, int64_t index) {
  const HostArray& array = batch.at(name);
  const auto size = static_cast<size_t>(array.shape.at(1));
  return {array.data<T>() + static_cast<size_t>(index) * size, size};
}

DecodeRow row_of(const Batch& batch, int64_t index) {
  return {part_of<int32_t>(batch, "ids", index), part_of<int32_t>(batch, "labels", index),
          part_of<int32_t>(batch, "segment_ids", index), part_of<float>(batch, "weights", index)};
}

// The document at positions [begin, end) of a row: its ids and the label of the last. nullopt if
// the prompt or the reference would be empty.
std::optional<DecodedExample> cut(const DecodeRow& row, size_t begin, size_t end,
                                  const DecodeHParams& p) {
  std::vector<int32_t> tokens(row.ids.begin() + static_cast<int64_t>(begin),
                              row.ids.begin() + static_cast<int64_t>(end));
  if (row.weights[end - 1] > 0.0f) tokens.push_back(row.labels[end - 1]);
  auto prompt = static_cast<size_t>(p.prompt_length);
  if (prompt == 0) {
    // The label at position i is token i + 1: the first scored one begins the reference.
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
    const bool has_encoder = batch.contains("encoder_ids");
    for (int64_t index = 0; index < rows && !full(); ++index)
      has_encoder ? read_encoded(batch, index) : read(row_of(batch, index));
  }
  ExampleSet take() { return std::move(set_); }

 private:
  void read(const DecodeRow& row) {
    for (size_t begin = 0, end = 0; begin < row.ids.size() && !full(); begin = end) {
      while (end < row.ids.size() && row.segments[end] == row.segments[begin]) ++end;
      if (row.segments[begin] == 0) continue;  // Padding.
      std::optional<DecodedExample> example = cut(row, begin, end, p_);
      example ? add(std::move(*example)) : void(++set_.too_short);
    }
  }

  // Each document that an encoder reads is a prompt; its reference is what the decoder predicts.
  void read_encoded(const Batch& batch, int64_t index) {
    const DecodeRow row = row_of(batch, index);
    const auto ids = part_of<int32_t>(batch, "encoder_ids", index);
    const auto segments = part_of<int32_t>(batch, "encoder_segment_ids", index);
    for (size_t begin = 0, end = 0; begin < ids.size() && !full(); begin = end) {
      while (end < ids.size() && segments[end] == segments[begin]) ++end;
      if (segments[begin] == 0) continue;  // Padding.
      DecodedExample example;
      example.prompt_ids.assign(ids.begin() + static_cast<int64_t>(begin),
                                ids.begin() + static_cast<int64_t>(end));
      for (size_t i = 0; i < row.labels.size(); ++i)
        if (row.segments[i] == segments[begin] && row.weights[i] > 0.0f)
          example.reference_ids.push_back(row.labels[i]);
      add(std::move(example));
    }
  }

  void add(DecodedExample example) {
    example.number = std::ssize(set_.examples);
    example.prompt = text_.text(example.prompt_ids);
    example.reference = text_.continuation(example.prompt_ids, example.reference_ids);
    set_.examples.push_back(std::move(example));
  }

  const DecodeHParams& p_;
  const PromptText& text_;
  ExampleSet set_;
};

// In the order of Finish.
constexpr const char* kHowItEnded[] = {"ended by a stop token", "ended by a stop string",
                                       "cut off at max_decode_steps"};

// A Markdown code block that shows the text literally.
std::string block(const std::string& text) {
  std::string indented = "\n    ";
  for (const char c : printable(text)) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return indented + "\n\n";
}

}  // namespace

int64_t longest_prompt(const std::vector<DecodedExample>& examples) {
  int64_t longest = 0;
  for (const DecodedExample& example : examples)
    longest = std::max(longest, std::ssize(example.prompt_ids));
  return longest;
}

ExampleSet read_examples(BaseInput& input, const DecodeHParams& p, const PromptText& text) {
  const Batch specification = input.specification();
  for (const char* name : {"ids", "labels", "segment_ids", "weights"})
    if (!specification.contains(name))
      fail("its batches have no '{}', so they contain no documents to decode", name);
  if (p.num_examples < 0 && input.repeats())
    fail(
        "its input repeats without end; set task.decode.num_examples, or repeat=false or "
        "num_batches of the input");
  ExampleReader reader(p, text);
  const LookupBound vocabulary{input.vocab_size(), "the input's vocabulary"};
  const LookupBounds bounds = {{"ids", vocabulary}, {"labels", vocabulary}};
  input.reset();
  for (int64_t taken = 0; !reader.full(); ++taken) {
    if (p.num_examples < 0) check_that_it_ends(input, taken);
    const std::optional<Batch> batch = input.get_next();
    if (!batch) break;
    check_batch(*batch, bounds, fmt::format("input '{}'", input.name()));
    reader.read(*batch);
  }
  input.reset();
  ExampleSet set = reader.take();
  if (set.examples.empty())
    fail(
        "it has no document to decode: {} are too short for a prompt of {} tokens followed by a "
        "reference (task.decode.prompt_length)",
        set.too_short, p.prompt_length);
  return set;
}

std::string sample_view(const DecodedExample& example, SampleIds shown) {
  const auto ids_line = [&](const std::vector<int32_t>& ids, const std::string& text) {
    const std::string line = token_ids_text(ids);
    return shown == SampleIds::kHidden || line == text ? std::string() : "\nids: " + line;
  };
  std::string view =
      fmt::format("--- prompt {}\n{}", example.number + 1, printable(example.prompt));
  view += ids_line(example.prompt_ids, example.prompt);
  for (size_t i = 0; i < example.samples.size(); ++i) {
    const DecodedSample& sample = example.samples[i];
    view += fmt::format("\n--- continuation{}: {} token{}, {}, log-probability {:.2f}",
                        example.samples.size() > 1 ? fmt::format(" {}", i + 1) : "",
                        sample.ids.size(), sample.ids.size() == 1 ? "" : "s",
                        kHowItEnded[static_cast<size_t>(sample.finish)],
                        plain_nan(sample.log_probability));
    if (sample.score != sample.log_probability)
      view += fmt::format(", score {:.3f}", plain_nan(sample.score));
    view += "\n" + printable(sample.text);
    view += ids_line(sample.ids, sample.text);
  }
  return view;
}

std::string sample_line(const DecodedExample& example, size_t sample, std::optional<int64_t> step) {
  const DecodedSample& decoded = example.samples.at(sample);
  const bool has_reference = !example.reference_ids.empty();
  JsonLine line;
  if (step) line.add("step", *step);
  line.add("example", example.number)
      .add("sample", static_cast<int64_t>(sample))
      .add("prompt", valid_utf8(example.prompt))
      .add("continuation", valid_utf8(decoded.text));
  if (has_reference) line.add("reference", valid_utf8(example.reference));
  line.add("log_probability", decoded.log_probability)
      .add("score", decoded.score)
      .add("finish", enum_name(decoded.finish))
      .add_raw("prompt_ids", json_list(example.prompt_ids))
      .add_raw("ids", json_list(decoded.ids));
  if (has_reference) line.add_raw("reference_ids", json_list(example.reference_ids));
  return line.text();
}

std::string sample_markdown(const DecodedExample& example) {
  std::string page = "Prompt\n" + block(example.prompt);
  for (const DecodedSample& sample : example.samples)
    page +=
        fmt::format("Continuation, log-probability {:.2f}\n", plain_nan(sample.log_probability)) +
        block(sample.text);
  return page;
}

void write_samples(const std::filesystem::path& file, const std::vector<DecodedExample>& examples) {
  std::string text;
  for (const DecodedExample& example : examples)
    for (size_t sample = 0; sample < example.samples.size(); ++sample)
      text += sample_line(example, sample) + '\n';
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, text);
}

}  // namespace tessera
