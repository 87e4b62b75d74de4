// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/decoder_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/plain_nan.h"
#include "core/io/file.h"
#include "core/io/json_line.h"
#include "tasks/logging/printable.h"

namespace tessera {
namespace {

std::string list(const std::vector<int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

void add_texts(const DecodedExample& example, const DecodedSample& decoded, JsonLine* line) {
  line->add("prompt", valid_utf8(example.prompt)).add("continuation", valid_utf8(decoded.text));
  if (!example.reference_ids.empty()) line->add("reference", valid_utf8(example.reference));
  line->add("log_probability", decoded.log_probability)
      .add("score", decoded.score)
      .add("finish", enum_name(decoded.finish))
      .add_raw("prompt_ids", list(example.prompt_ids))
      .add_raw("ids", list(decoded.ids));
  if (!example.reference_ids.empty()) line->add_raw("reference_ids", list(example.reference_ids));
}

// A block that shows text as it is, whatever marks of Markdown are in it.
std::string block(const std::string& text) {
  std::string indented = "\n    ";
  for (const char c : printable(text)) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return indented + "\n\n";
}

}  // namespace

std::string decoder_line(const DecodedExample& example, size_t sample) {
  JsonLine line;
  line.add("example", example.number).add("sample", static_cast<int64_t>(sample));
  add_texts(example, example.samples.at(sample), &line);
  return line.text();
}

std::string sample_line(int64_t step, const DecodedExample& example, size_t sample) {
  JsonLine line;
  line.add("step", step).add("example", example.number).add("sample", static_cast<int64_t>(sample));
  add_texts(example, example.samples.at(sample), &line);
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

std::filesystem::path write_decoder_out(const std::filesystem::path& run_directory,
                                        const std::string& dataset, int64_t step,
                                        const std::vector<DecodedExample>& examples) {
  const std::filesystem::path directory = run_directory / "decoder_out" / dataset;
  std::filesystem::create_directories(directory);
  const std::filesystem::path file = directory / fmt::format("step_{:010}.jsonl", step);
  std::string text;
  for (const DecodedExample& example : examples)
    for (size_t sample = 0; sample < example.samples.size(); ++sample)
      text += decoder_line(example, sample) + '\n';
  write_file_atomically(file, text);
  return file;
}

}  // namespace tessera
