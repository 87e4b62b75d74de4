// SPDX-License-Identifier: Apache-2.0
// --mode=decode and samples during training, for a model of eight letters without a tokenizer.
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/synthetic_input.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

RunWith decoding(std::vector<std::string> prompts = {}) {
  RunWith options;
  options.mode = DecodeOptions{.prompts = std::move(prompts)};
  return options;
}

// A run of `steps` steps that decodes synthetic sequences from prompts of 4 tokens.
ExperimentConfig decodable(int64_t steps = 6) {
  ExperimentConfig config = tiny_config(steps);
  config.decode_inputs["copies"] = SyntheticInput::HParams{.task = SyntheticTask::kCopy,
                                                           .name = "copies",
                                                           .global_batch_size = 4,
                                                           .seq_len = 16,
                                                           .num_letters = 8,
                                                           .distance = 2,
                                                           .num_batches = 3};
  DecodeHParams& p = task_of(config).decode;
  p.prompt_length = 4;
  p.max_decode_steps = 8;
  p.prefill_chunk = 3;
  p.batch = 4;
  return config;
}

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  std::istringstream text(read_bytes(file));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  return lines;
}

std::vector<Json> decoded(const fs::path& directory, int64_t step = 6) {
  return lines_of(directory / fmt::format("decoder_out/copies/step_{:010}.jsonl", step));
}

std::string message_of(const ExperimentConfig& config, const fs::path& directory,
                       const RunWith& options) {
  return error_of([&] { run_tiny(config, directory, options); });
}

// Requires equal tokens, and equal scores up to rounding.
void require_same(const std::vector<Json>& a, const std::vector<Json>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* member : {"prompt", "continuation", "reference", "finish"})
      REQUIRE(a[i].at(member).as_string() == b[i].at(member).as_string());
    REQUIRE(a[i].at("log_probability").as_number() ==
            Approx(b[i].at("log_probability").as_number()).epsilon(1e-4));
  }
}

TEST_CASE("datasets are decoded to one file per checkpoint, each document once") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  task_of(config).train.save_interval_steps = 3;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  task_of(config).decode.num_samples = 2;
  REQUIRE(run_tiny(config, directory.path(), decoding()) == 0);
  const std::vector<Json> lines = decoded(directory.path());
  REQUIRE(lines.size() == 24);
  const SyntheticInput input({.task = SyntheticTask::kCopy,
                              .global_batch_size = 4,
                              .seq_len = 16,
                              .num_letters = 8,
                              .distance = 2});
  for (size_t i = 0; i < lines.size(); ++i) {
    REQUIRE(lines[i].at("example").as_integer() == static_cast<int64_t>(i / 2));
    REQUIRE(lines[i].at("sample").as_integer() == static_cast<int64_t>(i % 2));
    REQUIRE(lines[i].at("ids").as_array().size() == 8);
    REQUIRE(lines[i].at("log_probability").as_number() < 0.0);
    REQUIRE(lines[i].at("finish").as_string() == "length");
    // Prompt and reference together are the document.
    std::vector<int64_t> document;
    for (const char* part : {"prompt_ids", "reference_ids"})
      for (const Json& id : lines[i].at(part).as_array()) document.push_back(id.as_integer());
    const auto tokens = input.sequence(static_cast<int64_t>(i / 2)).tokens;
    REQUIRE(lines[i].at("prompt_ids").as_array().size() == 4);
    REQUIRE(std::vector<int64_t>(document.end() - 12, document.end()) ==
            std::vector<int64_t>(tokens.end() - 12, tokens.end()));
  }
  RunWith earlier = decoding();
  earlier.of_mode<DecodeOptions>().checkpoint = {CheckpointChoice::Kind::kStep, 3};
  REQUIRE(run_tiny(config, directory.path(), earlier) == 0);
  REQUIRE(decoded(directory.path(), 3).size() == 24);
  REQUIRE(decoded(directory.path(), 3)[0].at("log_probability").as_number() !=
          lines[0].at("log_probability").as_number());
  // The training run is unchanged.
  REQUIRE(run_tiny(decodable(), directory.path(), [] {
            RunWith options;
            options.allow_config_change = true;
            return options;
          }()) == 0);
}

TEST_CASE(
    "one checkpoint is decoded by beam search, greedily and by sampling, and beams score best") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  REQUIRE(run_tiny(config, directory.path()) == 0);
  DecodeHParams& p = task_of(config).decode;
  std::map<DecodeStrategy, double> totals;
  for (const DecodeStrategy strategy :
       {DecodeStrategy::kGreedy, DecodeStrategy::kSample, DecodeStrategy::kBeam}) {
    p.strategy = strategy;
    p.length_penalty = 0.0;
    REQUIRE(run_tiny(config, directory.path(), decoding()) == 0);
    for (const Json& line : decoded(directory.path()))
      totals[strategy] += line.at("score").as_number();
  }
  REQUIRE(totals[DecodeStrategy::kBeam] > totals[DecodeStrategy::kGreedy] - 1e-6);
  REQUIRE(totals[DecodeStrategy::kGreedy] > totals[DecodeStrategy::kSample]);
}

// Decodes in processes that are threads of this one; returns the file, or the errors.
std::string decoded_by(size_t count, const ExperimentConfig& config, const fs::path& directory) {
  const fs::path file = directory / "decoder_out/copies/step_0000000006.jsonl";
  fs::remove(file);
  RunWith options = decoding();
  options.devices = 1;
  for (const int64_t size : config.mesh.ici_mesh_shape) options.devices *= size;
  options.devices /= static_cast<int64_t>(count);
  const auto transports = make_loopback(static_cast<int>(count));
  std::vector<std::string> errors(count);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < count; ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup processes(transports[rank], std::chrono::seconds(60));
        try {
          run_tiny(config, directory, options, processes);
        } catch (const Error& error) {
          errors[rank] = fmt::format("{}: {}\n", rank, error.what());
          processes.fail_together(error.what(), 1, std::chrono::seconds(20));
        }
      });
  }
  std::string failed;
  for (const std::string& error : errors) failed += error;
  return failed.empty() ? read_bytes(file) : failed;
}

TEST_CASE("a dataset is decoded in shards, to the same bytes by any number of processes") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  REQUIRE(run_tiny(config, directory.path()) == 0);
  task_of(config).decode.num_examples = 11;  // Shares of different sizes.
  task_of(config).decode.batch = 8;
  task_of(config).decode.window = 9;
  for (const DecodeStrategy strategy : {DecodeStrategy::kSample, DecodeStrategy::kBeam}) {
    INFO(enum_name(strategy));
    DecodeHParams& p = task_of(config).decode;
    p.strategy = strategy;
    p.num_samples = p.beam_size = strategy == DecodeStrategy::kBeam ? 3 : 1;
    p.window = strategy == DecodeStrategy::kBeam ? 0 : 9;
    config.mesh.ici_mesh_shape.clear();
    const std::string one_device = decoded_by(1, config, directory.path());
    const std::vector<Json> expected = decoded(directory.path());
    REQUIRE(std::ssize(expected) == 11 * p.num_samples);
    for (const auto& [shape, mesh_rules] :
         {std::pair{std::vector<int64_t>{1, 4, 1}, Strategy::kReplicas},
          std::pair{std::vector<int64_t>{1, 2, 2}, Strategy::kFullyShardedTensor},
          std::pair{std::vector<int64_t>{1, 1, 2}, Strategy::kFullyShardedTensor}}) {
      INFO(shape[1] << " x " << shape[2]);
      config.mesh.ici_mesh_shape = shape;
      config.rules = strategy_rules(mesh_rules);
      const std::string together = decoded_by(1, config, directory.path());
      INFO(together);
      require_same(decoded(directory.path()), expected);
      if (mesh_rules == Strategy::kReplicas) REQUIRE(together == one_device);
      REQUIRE(decoded_by(2, config, directory.path()) == together);
      if (shape[1] > 1) REQUIRE(decoded_by(4, config, directory.path()) == together);
    }
  }
}

TEST_CASE("an error of a process that decodes names the prompt, and leaves no file") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  REQUIRE(run_tiny(config, directory.path()) == 0);
  config.mesh.ici_mesh_shape = {1, 4, 1};
  task_of(config).decode.cache_length = 10;
  REQUIRE_THAT(
      decoded_by(2, config, directory.path()),
      Catch::Contains("0: prompt 1 has 4 tokens") && Catch::Contains("1: prompt 3 has 4 tokens"));
  REQUIRE(!fs::exists(directory / "decoder_out/copies/step_0000000006.jsonl"));
}

TEST_CASE("a running job is followed, and decoded with each of its checkpoints once") {
  using Kind = CheckpointChoice::Kind;
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  task_of(config).train.save_interval_steps = 2;
  config.eval.follow_poll_seconds = 0.01;
  const auto decode = [&](const CheckpointChoice& choice) {
    RunWith options;
    options.mode = DecodeOptions{.checkpoint = choice};
    return run_tiny(config, directory.path(), options);
  };
  {
    int followed = -1;
    std::jthread follower([&] { followed = decode({Kind::kFollow}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(run_tiny(config, directory.path()) == 0);
    follower.join();
    REQUIRE(followed == 0);
  }
  std::map<int64_t, std::vector<Json>> found;
  for (const int64_t step : {2, 4, 6}) found[step] = decoded(directory.path(), step);
  REQUIRE(decode({Kind::kAll}) == 0);  // Again, all of them.
  for (const auto& [step, lines] : found) require_same(decoded(directory.path(), step), lines);
  const fs::path file = directory / "decoder_out/copies/step_0000000004.jsonl";
  for (const int64_t step : {2, 6})
    fs::resize_file(directory / fmt::format("decoder_out/copies/step_{:010}.jsonl", step), 0);
  fs::remove(file);
  REQUIRE(decode({Kind::kFollow}) == 0);  // The one that is missing.
  require_same(decoded(directory.path(), 4), found.at(4));
  REQUIRE(decoded(directory.path(), 2).empty());
  REQUIRE(decoded(directory.path(), 6).empty());
}

TEST_CASE("without decode datasets the documents of the eval datasets are continued") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  REQUIRE(run_tiny(config, directory.path()) == 0);
  config.decode_inputs.clear();
  task_of(config).decode.num_examples = 5;
  REQUIRE(run_tiny(config, directory.path(), decoding()) == 0);
  REQUIRE(lines_of(directory / "decoder_out/validation/step_0000000006.jsonl").size() == 5);
  task_of(config).decode.prompt_length = 0;
  REQUIRE_THAT(message_of(config, directory.path(), decoding()),
               Catch::Contains(
                   "give --prompt=TEXT or --prompt_ids=IDS, or --set task.decode.prompt_length=N"));
}

TEST_CASE("samples are taken during training, and a resumed run does not repeat their lines") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable(6);
  task_of(config).train.save_interval_steps = 4;
  task_of(config).train.sample = {
      .length = 5, .interval_steps = 2, .prompts = {"7 8 9", "10"}, .seed = 3};
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const std::string whole = read_bytes(directory / "samples.jsonl");
  const std::vector<Json> lines = lines_of(directory / "samples.jsonl");
  REQUIRE(lines.size() == 6);
  for (size_t i = 0; i < lines.size(); ++i) {
    REQUIRE(lines[i].at("step").as_integer() == static_cast<int64_t>(i / 2 * 2 + 2));
    REQUIRE(lines[i].at("prompt").as_string() == (i % 2 == 0 ? "7 8 9" : "10"));
    REQUIRE(lines[i].at("ids").as_array().size() == 5);
    REQUIRE(lines[i].find("reference") == nullptr);
  }
  // The number of prompts does not change the sample of a prompt.
  const TemporaryDirectory other;
  ExperimentConfig fewer = config;
  task_of(fewer).train.sample.prompts = {"10"};
  REQUIRE(run_tiny(fewer, other.path()) == 0);
  REQUIRE(lines_of(other / "samples.jsonl")[1].at("continuation").as_string() ==
          lines[3].at("continuation").as_string());

  fs::remove_all(directory / "checkpoints/step_0000000006");
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(read_bytes(directory / "samples.jsonl") == whole);
}

TEST_CASE("sampling changes no bit of training and adds nothing to checkpoints") {
  const TemporaryDirectory with, without;
  ExperimentConfig config = decodable(5);
  REQUIRE(run_tiny(config, without.path()) == 0);
  task_of(config).train.sample = {.length = 4, .interval_steps = 1};
  REQUIRE(run_tiny(config, with.path()) == 0);
  REQUIRE(losses_of(with.path()) == losses_of(without.path()));
  const Checkpoint checkpoint = CheckpointStore(with / "checkpoints").open(5);
  for (const auto& [path, entry] : checkpoint.entries()) REQUIRE(!path.starts_with("cache/"));
}

TEST_CASE("invalid decode requests are rejected before decoding starts") {
  const TemporaryDirectory directory;
  ExperimentConfig config = decodable();
  REQUIRE_THAT(message_of(config, directory.path(), decoding({"7"})),
               Catch::Contains("holds no checkpoint to decode with; train first"));
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const auto of_prompt = [&](const std::string& prompt) {
    return message_of(config, directory.path(), decoding({"7", prompt}));
  };
  REQUIRE(of_prompt(" ") ==
          "--prompt number 2: the prompt is empty; expected at least one token to continue");
  REQUIRE(of_prompt("") == "no error");  // Starts a new text.
  REQUIRE_THAT(of_prompt("7 eight"), Catch::Contains("'eight' is not a token id"));
  REQUIRE_THAT(of_prompt("7 99"), Catch::Contains("token id 99 is beyond the vocabulary"));
  RunWith missing = decoding({"7"});
  missing.of_mode<DecodeOptions>().checkpoint = {CheckpointChoice::Kind::kStep, 5};
  REQUIRE_THAT(message_of(config, directory.path(), missing), Catch::Contains("step 5"));
  ExperimentConfig endless = config;
  endless.decode_inputs["copies"].as<SyntheticInput::HParams>().num_batches = -1;
  REQUIRE_THAT(message_of(endless, directory.path(), decoding()),
               Catch::Contains("its input repeats without end; set task.decode.num_examples") &&
                   Catch::Contains("in decode_inputs.copies"));
  task_of(config).decode.stop_tokens = {"<eos>"};
  REQUIRE_THAT(
      message_of(config, directory.path(), decoding({"7"})),
      Catch::Contains("'<eos>' is not a token") && Catch::Contains("task.decode.stop_tokens"));
  task_of(config).decode.stop_tokens.clear();
  task_of(config).decode.cache_length = 8;
  REQUIRE_THAT(message_of(config, directory.path(), decoding({"7 7 7 7"})),
               Catch::Contains("has room for 1"));
}

TEST_CASE("prompts may be given as ids, and ids beyond the vocabulary are rejected") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = decodable();
  run_tiny(config, directory / "run");
  RunWith options = decoding();
  options.of_mode<DecodeOptions>().prompt_ids = {"1 2,3", "4"};
  options.of_mode<DecodeOptions>().print_ids = true;
  REQUIRE(message_of(config, directory / "run", options) == "no error");
  const auto refused = [&](const std::string& ids, const std::string& why) {
    options.of_mode<DecodeOptions>().prompt_ids = {ids};
    REQUIRE_THAT(message_of(config, directory / "run", options), Catch::Contains(why));
  };
  refused("1 99999", "token id 99999 is outside the model's vocabulary; expected an id from 0 to ");
  refused("1 x", "--prompt_ids=1 x: 'x' is not a token id");
  refused("1 -2", "'-2' is not a token id");
  refused(" ,", "no token ids are given");
}

TEST_CASE("a run without a tokenizer is decoded from ids, and a text prompt is an error") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = decodable();
  run_tiny(config, directory / "run");
  ExperimentConfig lost = config;
  lost.input =
      FlatTokensInput::HParams{.path = "/nowhere/t.h5", .global_batch_size = 4, .seq_len = 16};
  RunWith options = decoding({"1 2 3"});
  REQUIRE_THAT(message_of(lost, directory / "run", options),
               Catch::Contains("has no tokenizer") && Catch::Contains("/nowhere/t.h5") &&
                   Catch::Contains("--prompt_ids='1 2 3'"));
  options.of_mode<DecodeOptions>().prompts.clear();
  options.of_mode<DecodeOptions>().prompt_ids = {"1 2 3"};
  REQUIRE(message_of(lost, directory / "run", options) == "no error");
  options.of_mode<DecodeOptions>().prompt_ids = {"99999"};
  REQUIRE_THAT(message_of(lost, directory / "run", options),
               Catch::Contains("token id 99999 is outside the model's vocabulary"));
}

}  // namespace
}  // namespace tessera
