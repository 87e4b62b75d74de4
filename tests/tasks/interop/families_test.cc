// SPDX-License-Identifier: Apache-2.0
// Every family of Hugging Face models against transformers: logits and gradients of the goldens of
// tests/golden/hugging_face.py, packed documents, and decoding.
#include <algorithm>
#include <sstream>

#include "core/devices/iteration_space.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "inputs/synthetic_input.h"
#include "tasks/interop/hf_copy.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/task/single_task.h"
#include "tests/out_of_tree/olmoe.cc"  // NOLINT: the plugin's family, which has a golden.
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Floats = std::vector<float>;
using Rows = std::vector<std::vector<int32_t>>;

double largest_of(const Floats& values) {
  double largest = 0.0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// Values of our weights, in the form of their tensor. A weight without a gradient has zeros.
Floats as_theirs(const HfTensor& tensor, const ParameterTable& table,
                 std::map<std::string, Floats>& ours) {
  Floats values(static_cast<size_t>(tensor.elements()));
  for (const HfPart& part : tensor.parts) {
    const Parameter& parameter = table.at(part.parameter);
    Floats& weight = ours[parameter.path];
    weight.resize(static_cast<size_t>(parameter.type.elements()));
    const Region whole{std::vector<int64_t>(parameter.type.axes.size(), 0),
                       sizes_of(parameter.type.axes)};
    HfTensor unshifted = tensor;
    unshifted.offset = 0.0;  // A gradient has no offset.
    copy_to_hf(unshifted, part, {0, tensor.rows},
               {whole, DType::kF32, std::as_writable_bytes(std::span(weight))}, values);
  }
  return values;
}

void require_gradients(const std::string& golden, const ExperimentConfig& config, HfPass& pass,
                       double tolerance) {
  const SafetensorsModel theirs(hf_golden(golden) / "gradients");
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const ParameterTable& table = task->model().parameters();
  double of_model = 0.0;
  std::map<std::string, Floats> expected;
  for (const std::string& name : theirs.names()) {
    Floats& values = expected[name];
    values.resize(static_cast<size_t>(theirs.find(name)->elements()));
    theirs.read(name, 0, values);
    of_model = std::max(of_model, largest_of(values));
  }
  const std::vector<HfTensor> tensors =
      hf_tensors(hf_model_of(config, hf_golden_config(golden)), table);
  REQUIRE(tensors.size() == expected.size());
  for (const HfTensor& tensor : tensors) {
    INFO(tensor.name);
    if (table.at(tensor.parts.at(0).parameter).balanced_by) continue;  // No gradient moves it.
    const Floats& values = expected.at(tensor.name);
    // Zero in exact arithmetic, as the same number added to all scores of a query: what is rounded
    // in the model.
    const bool is_zero = table.at(tensor.parts.at(0).parameter).path.ends_with("key_bias");
    const double largest = std::max(largest_of(values), (is_zero ? 1e-3 : 1e-5) * of_model);
    REQUIRE(largest_difference(as_theirs(tensor, table, pass.gradients), values) <
            tolerance * largest);
  }
}

// The files of an import come back, with the family and all members of its config.json.
void require_same_export(const std::string& golden, const ExperimentConfig& config,
                         const fs::path& directory) {
  RunWith options;
  options.of_mode<ExportOptions>().dtype = hf_dtype(golden);
  export_hf(config, directory / "run", directory / "out", options);
  require_same_tensors(hf_golden(golden), directory / "out");
  REQUIRE(read_file(directory / "out/config.json") == read_file(hf_golden(golden) / "config.json"));
}

Rows parts_of(const Rows& rows, int64_t begin, int64_t length) {
  Rows parts;
  for (const auto& row : rows)
    parts.emplace_back(row.begin() + begin, row.begin() + begin + length);
  return parts;
}

// Packed documents score as each does alone.
void require_same_packed(const ExperimentConfig& config, const fs::path& run, const Rows& rows,
                         const Rows& encoder_rows, std::vector<int64_t> lengths = {12, 8}) {
  std::vector<int64_t> encoder_lengths = {6, 7};
  encoder_lengths.resize(lengths.size());
  HfEncoderRows encoder{.ids = encoder_rows};
  if (!encoder_rows.empty()) encoder.documents = encoder_lengths;
  const Floats packed = pass_of(config, run, rows, Backward::kNo, lengths, {}, encoder).logits;
  const size_t vocab = packed.size() / (rows.size() * rows[0].size());
  int64_t begin = 0, encoder_begin = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    const Rows alone = parts_of(rows, begin, length);
    const Rows encoder_alone = parts_of(encoder_rows, encoder_begin, encoder_lengths[i]);
    encoder_begin += encoder_lengths[i];
    const Floats logits = logits_of(config, run, alone, {encoder_alone});
    Floats same;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto first =
          packed.begin() +
          static_cast<int64_t>((row * rows[0].size() + static_cast<size_t>(begin)) * vocab);
      same.insert(same.end(), first, first + length * static_cast<int64_t>(vocab));
    }
    REQUIRE(largest_difference(same, logits) < 1e-5 * largest_of(logits));
    begin += length;
  }
}

void require_as_transformers(const std::string& name, StackStyle stack) {
  INFO(name);
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment(name, stack);
  import_hf(config, hf_golden(name), directory / "run");
  const HfScores scores = read_scores(hf_golden(name));
  HfPass pass = pass_of(config, directory / "run", scores.ids, Backward::kYes, {}, scores.labels,
                        {scores.encoder_ids});
  REQUIRE(largest_difference(pass.logits, scores.logits) <
          std::max(1e-5, 4.0 * scores.spread[0]) * largest_of(scores.logits));
  require_gradients(name, config, pass, std::max(1e-4, 4.0 * scores.spread[1]));
  require_same_export(name, config, directory.path());
  require_same_packed(config, directory / "run", scores.ids, scores.encoder_ids);
}

// Every second model in a loop, the others unrolled; with `other` the reverse.
void require_all_as_transformers(bool other) {
  const std::vector<std::string> names = hf_golden_names();
  for (size_t i = 0; i < names.size(); ++i)
    require_as_transformers(names[i],
                            (i % 2 == 0) == other ? StackStyle::kUnrolled : StackStyle::kRepeated);
}

TEST_CASE("every family has the logits and gradients of transformers, and is exported unchanged") {
  require_all_as_transformers(false);
}

TEST_CASE("every family has them in the other style of stacks, too", "[full]") {
  require_all_as_transformers(true);
}

// Prompts and continuations of --mode=decode, 16 tokens each.
Rows decoded_rows(const fs::path& run) {
  std::istringstream lines(read_bytes(run / "decoder_out/letters/step_0000000000.jsonl"));
  Rows rows;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, "line");
    rows.emplace_back();
    for (const char* member : {"prompt_ids", "ids"})
      for (const Json& id : json.at(member).as_array())
        rows.back().push_back(static_cast<int32_t>(id.as_integer()));
    REQUIRE(rows.back().size() == 16);
  }
  REQUIRE(rows.size() == 2);
  return rows;
}

// Whether it is neither a masked model nor one with an encoder.
bool continues_texts(const std::string& golden) {
  const HfScores scores = read_scores(hf_golden(golden));
  return scores.labels.empty() && scores.encoder_ids.empty();
}

TEST_CASE("decoding of every family matches the argmax of whole forward passes") {
  for (const std::string& name : hf_golden_names()) {
    INFO(name);
    if (!continues_texts(name)) continue;
    const TemporaryDirectory directory;
    ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    config.decode_inputs["letters"] = SyntheticInput::HParams{.task = SyntheticTask::kCopy,
                                                              .name = "letters",
                                                              .global_batch_size = 2,
                                                              .seq_len = 8,
                                                              .num_letters = 8,
                                                              .distance = 2,
                                                              .num_batches = 1};
    DecodeHParams& p = config.task.as<SingleTask::HParams>().decode;
    p.temperature = 0.0;
    p.prompt_length = 4;
    p.max_decode_steps = 12;
    import_hf(config, hf_golden(name), directory / "run");
    RunWith options;
    options.mode = DecodeOptions{};
    options.job_log_dir = directory / "run";
    ProcessGroup alone;
    const int code = run_hf(config, options, alone);
    REQUIRE(code == 0);
    const Rows rows = decoded_rows(directory / "run");
    // The ids of the input's vocabulary, which are the only ones drawn.
    const int64_t drawn = config.input.instantiate()->vocab_size();
    const Floats logits = logits_of(config, directory / "run", rows);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 4; i < 16; ++i) {
        const auto begin = logits.begin() + static_cast<int64_t>((row * 16 + i - 1) * 48);
        REQUIRE(std::max_element(begin, begin + drawn) - begin == rows[row][i]);
      }
    }
  }
}

TEST_CASE("models with an encoder decode the tokens that transformers generates") {
  for (const std::string& name : hf_golden_names()) {
    const HfScores scores = read_scores(hf_golden(name));
    if (scores.generated.empty()) continue;
    INFO(name);
    const TemporaryDirectory directory;
    const ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    import_hf(config, hf_golden(name), directory / "run");
    REQUIRE(decoded(config, directory / "run", scores.encoder_ids,
                    std::ssize(scores.generated[0]) - 1) == parts_of(scores.generated, 1, 12));
  }
}

// Rotations change after 16 tokens in these models.
TEST_CASE("rotations that depend on the length are of the whole prompt and of the document") {
  size_t models = 0;
  for (const std::string& name : hf_golden_names()) {
    const HfScores scores = read_scores(hf_golden(name));
    if (scores.continued.empty()) continue;
    INFO(name);
    ++models;
    const TemporaryDirectory directory;
    const ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    import_hf(config, hf_golden(name), directory / "run");
    for (const int64_t chunk : {3, 8, 64}) {
      CAPTURE(chunk);
      for (size_t row = 0; row < 2; ++row) {
        const Rows whole = {scores.continued[row]};
        const int64_t prompt = row == 0 ? 5 : 24;
        REQUIRE(decoded(config, directory / "run", parts_of(whole, 0, prompt), 38 - prompt,
                        chunk) == parts_of(whole, prompt, 38 - prompt));
      }
      // In one batch a row's rotations do not depend on the other's length.
      const Rows prompts = {parts_of(scores.continued, 0, 24)[1],
                            parts_of(scores.continued, 0, 5)[0]};
      REQUIRE(decoded(config, directory / "run", prompts, 14, chunk) ==
              Rows{parts_of(scores.continued, 24, 14)[1], parts_of(scores.continued, 5, 14)[0]});
    }
    require_same_packed(config, directory / "run", scores.continued, {}, {20, 10, 1, 7});
    require_same_packed(config, directory / "run", scores.continued, {}, {10, 17, 11});
  }
  REQUIRE(models == 2);
}

TEST_CASE("a masked model is not decoded token by token") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("bert");
  config.decode_inputs["letters"] = SyntheticInput::HParams{.task = SyntheticTask::kCopy,
                                                            .name = "letters",
                                                            .global_batch_size = 2,
                                                            .seq_len = 8,
                                                            .num_letters = 8,
                                                            .distance = 2,
                                                            .num_batches = 1};
  DecodeHParams& p = config.task.as<SingleTask::HParams>().decode;
  p.prompt_length = 4;
  p.max_decode_steps = 4;
  import_hf(config, hf_golden("bert"), directory / "run");
  RunWith options;
  options.mode = DecodeOptions{};
  options.job_log_dir = directory / "run";
  ProcessGroup alone;
  REQUIRE_THAT(error_of([&] { run_hf(config, options, alone); }),
               Catch::Contains("is not causal: its output for a token depends on later tokens"));
}

TEST_CASE("the table of families in the documents is complete") {
  const std::string page = read_file(fs::path(TESSERA_SOURCE_DIR) / "docs/formats.md");
  for (const HfFamily* family : hf_families()) {
    if (family->model_type == "olmoe") continue;  // It is included above from a plugin.
    REQUIRE_THAT(page, Catch::Contains(fmt::format("`{}`", family->model_type)));
  }
}

}  // namespace
}  // namespace tessera
