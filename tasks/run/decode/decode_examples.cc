// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decode_examples.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/printable.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/session/step_checks.h"

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
  // Numbers the new examples of all processes, in their order, and drops those beyond num_examples.
  // Returns whether to go on: a process had a batch, and more examples are needed.
  bool agree(ProcessGroup& processes, bool had_batch) {
    const std::vector<std::string> texts = processes.all_gather(
        pack(had_batch, std::ssize(set_.examples) - num_numbered_, too_short_), "examples to read");
    bool goes_on = false;
    set_.too_short = 0;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      bool had = false;
      int64_t added = 0, too_short = 0;
      unpack(texts[rank], had, added, too_short);
      if (std::cmp_equal(rank, processes.rank()))
        for (int64_t i = 0; i < added; ++i)
          set_.examples[static_cast<size_t>(num_numbered_ + i)].number = set_.total + i;
      set_.total += added;
      set_.too_short += too_short;
      goes_on = goes_on || had;
    }
    if (p_.num_examples >= 0) set_.total = std::min(set_.total, p_.num_examples);
    std::erase_if(set_.examples, [&](const auto& each) { return each.number >= set_.total; });
    num_numbered_ = std::ssize(set_.examples);
    return goes_on && set_.total != p_.num_examples;
  }
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
      example ? add(std::move(*example)) : void(++too_short_);
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
    example.prompt = text_.text(example.prompt_ids);
    example.reference = text_.continuation(example.prompt_ids, example.reference_ids);
    set_.examples.push_back(std::move(example));
  }

  const DecodeHParams& p_;
  const PromptText& text_;
  ExampleSet set_;
  int64_t num_numbered_ = 0;  // Examples that have their number.
  int64_t too_short_ = 0;     // In this process.
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

Infeed DecodeShare::infeed(const BaseInput& input, const std::filesystem::path& directory) const {
  Infeed infeed{.run_directory = directory};
  if (const RowRange rows = range(input.global_batch_size()); rows.size() > 0) infeed.rows = {rows};
  return infeed;
}

void keep_range(RowRange range, std::vector<DecodedExample>* examples) {
  *examples = {examples->begin() + range.begin, examples->begin() + range.end};
}

ExampleSet read_examples(BaseInput& input, const DecodeHParams& p, const PromptText& text,
                         DecodeShare share, ProcessGroup& processes) {
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
  const bool reads = share.range(input.global_batch_size()).size() > 0;
  std::optional<Batch> batch;
  int64_t taken = 0;
  do {
    if (p.num_examples < 0) check_that_it_ends(input, taken++);
    batch = reads ? input.get_next() : std::nullopt;
    if (!batch) continue;
    check_batch(*batch, bounds, fmt::format("input '{}'", input.name()));
    reader.read(*batch);
  } while (reader.agree(processes, batch.has_value()));
  input.reset();
  ExampleSet set = reader.take();
  if (set.total == 0)
    fail(
        "it has no document to decode: {} are too short for a prompt of {} tokens followed by a "
        "reference (task.decode.prompt_length)",
        set.too_short, p.prompt_length);
  return set;
}

void gather_examples(std::vector<DecodedExample>* examples, ProcessGroup& processes) {
  if (processes.size() == 1) return;
  MessageWriter own;
  for (const DecodedExample& example : *examples) {
    own.add(pack(example.number, example.prompt_ids, example.prompt, example.reference_ids,
                 example.reference, example.samples.size()));
    for (const DecodedSample& sample : example.samples)
      own.add(pack(sample.ids, sample.text, sample.log_probability, sample.score, sample.finish));
  }
  examples->clear();
  std::string part;
  for (const std::string& text : processes.gather(own.text(), "decoded examples"))
    for (MessageReader message(text); !message.at_end();) {
      DecodedExample& example = examples->emplace_back();
      size_t samples = 0;
      message.take(part);
      unpack(part, example.number, example.prompt_ids, example.prompt, example.reference_ids,
             example.reference, samples);
      example.samples.resize(samples);
      for (DecodedSample& sample : example.samples) {
        message.take(part);
        unpack(part, sample.ids, sample.text, sample.log_probability, sample.score, sample.finish);
      }
    }
  std::ranges::stable_sort(*examples, {}, &DecodedExample::number);
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
