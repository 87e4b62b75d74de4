// SPDX-License-Identifier: Apache-2.0
// Decoding from the command line: train on a text, delete the text, continue prompts.
#include <regex>

#include "core/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// runexp on a model of one narrow layer.
Ended runexp(const TemporaryDirectory& directory, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--exp=CharLm", "--threads=1",
                                        "--job_log_dir=" + (directory / "run").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(directory.path(), "runexp", arguments,
                     {"num_train_steps=60", "model_dims=48", "hidden_dims=96", "num_layers=1",
                      "warmup_steps=5", "learning_rate=0.006", "task.decode.max_decode_steps=40"});
}

// Returns the output under the headings that begin with `heading`, without heading and speed.
std::vector<std::string> shown(const std::string& output, const std::string& heading) {
  std::vector<std::string> texts;
  for (size_t at = output.find("--- " + heading); at != std::string::npos;
       at = output.find("--- " + heading, at + 1)) {
    const size_t begin = output.find('\n', at) + 1;
    size_t end = output.find("\n--- ", begin);
    if (end == std::string::npos) end = output.rfind('\n', output.size() - 2);
    texts.push_back(output.substr(begin, end - begin));
  }
  return texts;
}

TEST_CASE("a trained run continues prompts without its data, in any combination") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "pack my box with five dozen liquor jugs.\n";
  write_bytes(directory / "text.txt", text);
  const std::string input = "input.path=" + (directory / "text.txt").string();
  Ended ended = runexp(directory, {"--set", input, "--set", "task.train.sample.interval_steps=30",
                                   "--set", "sample_length=30"});
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE_THAT(ended.output, Catch::Contains("step 30: samples from the model") &&
                                 Catch::Contains("step 60: samples from the model"));
  REQUIRE(values_of(directory / "run", "loss").size() == 60);

  // From a dataset, while the data exist.
  ended = successful(
      runexp(directory, {"--mode=decode", "--set", "task.decode.prompt_length=12", "--set",
                         "task.decode.num_examples=3", "--set", "task.decode.strategy=greedy"}));
  const std::string lines =
      read_bytes(directory / "run/decoder_out/validation/step_0000000060.jsonl");
  const Json line = parse_json(lines.substr(0, lines.find('\n')), "line");
  REQUIRE(line.at("prompt").as_string().size() == 12);
  REQUIRE(line.at("continuation").as_string().size() == 40);
  REQUIRE(text.find(line.at("prompt").as_string() + line.at("reference").as_string()) !=
          std::string::npos);

  fs::remove(directory / "text.txt");
  fs::remove(directory / "run/corpus.h5");
  const std::vector<std::string> both = {"--mode=decode", "--prompt=pack my ",
                                         "--prompt=five\x1b[31m dozen"};
  ended = successful(runexp(directory, both));
  REQUIRE(shown(ended.output, "prompt") ==
          std::vector<std::string>{"pack my ", "five\\x1b[31m dozen"});
  const std::vector<std::string> continuations = shown(ended.output, "continuation");
  REQUIRE(continuations.size() == 2);
  REQUIRE(ended.output.find('\x1b') == std::string::npos);
  REQUIRE(!fs::exists(directory / "run/corpus.h5"));
  // Alone, and in reverse order.
  REQUIRE(shown(runexp(directory, {both[0], both[2]}).output, "continuation") ==
          std::vector<std::string>{continuations[1]});
  REQUIRE(shown(runexp(directory, {both[0], both[2], both[1]}).output, "continuation") ==
          std::vector<std::string>{continuations[1], continuations[0]});

  // Several samples up to the end of the line, given as a token and as text.
  for (const char* stop :
       {"task.decode.stop_tokens=[\"\\n\"]", "task.decode.stop_strings=[\"\\n\"]"}) {
    ended =
        successful(runexp(directory, {"--mode=decode", "--prompt=with five", "--set", stop, "--set",
                                      "task.decode.num_samples=3", "--checkpoint=60"}));
    REQUIRE(shown(ended.output, "continuation").size() == 3);
    for (const std::string& each : shown(ended.output, "continuation"))
      REQUIRE(each.find('\n') == std::string::npos);
    REQUIRE_THAT(ended.output, Catch::Contains("ended by a stop"));
  }

  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--mode=decode"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return with_code(2, runexp(directory, arguments)).output;
  };
  REQUIRE_THAT(refused({"--prompt=x", "--checkpoint=59"}), Catch::Contains("step 59"));
  REQUIRE_THAT(refused({"--prompt=x", "--set", "task.decode.stop_tokens=[\"<eos>\"]"}),
               Catch::Contains("no token '<eos>'"));
  REQUIRE_THAT(refused({"--prompt=x", "--set", "task.decode.top_p=1.5"}),
               Catch::Contains("task.decode.top_p is 1.5"));
  REQUIRE_THAT(refused({"--prompt=x", "--set", "task.decode.strategy=greddy"}),
               Catch::Contains("greedy"));
}

}  // namespace
}  // namespace tessera
