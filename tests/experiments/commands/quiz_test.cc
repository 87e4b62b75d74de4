// SPDX-License-Identifier: Apache-2.0
// quiz.CopyQuiz from the command line: a plugin's metrics, in training and in evaluation.
#include "core/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

int run(const TemporaryDirectory& directory, const std::vector<std::string>& more,
        std::string* output = nullptr) {
  std::vector<std::string> arguments = {
      "--exp=CopyQuiz", "--job_log_dir=" + (directory / "run").string(), "--threads=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = run_program(directory.path(), "runexp", arguments);
  if (output != nullptr) *output = ended.output;
  INFO(ended.output);
  REQUIRE((ended.code == 0 || ended.code == 2));
  return ended.code;
}

TEST_CASE("a model that learns to copy answers multiple choice and generates copies") {
  const TemporaryDirectory directory;
  std::string output;
  REQUIRE(run(directory, {}, &output) == 0);
  const std::vector<double> choices =
      numbers_of(directory / "run", "eval/questions/choice/accuracy");
  const std::vector<double> copies =
      numbers_of(directory / "run", "eval/validation/copy/exact_match");
  REQUIRE(choices.size() == 4);
  REQUIRE(copies.size() == 4);
  REQUIRE(choices.back() > 0.95);
  REQUIRE(copies.back() > 0.9);
  REQUIRE(numbers_of(directory / "run", "eval/questions/choice/questions").back() == 32.0);
  REQUIRE(numbers_of(directory / "run", "eval/validation/copy/examples").back() == 64.0);
  REQUIRE(numbers_of(directory / "run", "eval/questions/choice/normalised_accuracy").back() ==
          choices.back());
  REQUIRE_THAT(output, Catch::Contains("questions/choice"));
  REQUIRE(std::filesystem::exists(directory / "run/summaries/questions/choice"));

  // --mode=eval gives the same, also on a mesh.
  for (const std::string devices : {"1", "2"}) {
    REQUIRE(run(directory, {"--mode=eval", "--devices=" + devices}) == 0);
    const std::string text = read_bytes(directory / "run/eval_out/questions.jsonl");
    const size_t last = text.rfind('\n', text.size() - 2) + 1;  // 0 if there is a single line.
    const Json line = parse_json(text.substr(last), "line");
    REQUIRE(line.at("step").as_integer() == 1000);
    REQUIRE(line.at("choice/accuracy").as_number() == choices.back());
  }
}

TEST_CASE("an untrained model guesses") {
  const TemporaryDirectory directory;
  REQUIRE(run(directory, {"--set", "num_train_steps=1"}) == 0);
  // 32 questions with four answers: five standard deviations are 0.38.
  REQUIRE(numbers_of(directory / "run", "eval/questions/choice/accuracy").back() < 0.63);
  REQUIRE(numbers_of(directory / "run", "eval/validation/copy/exact_match").back() < 0.2);
}

TEST_CASE("a plugin's metrics are checked before the run") {
  const TemporaryDirectory directory;
  std::string output;
  REQUIRE(run(directory, {"--set", "task.train.save_keep_best=eval/questions/choice/acuracy"},
              &output) == 2);
  REQUIRE_THAT(output, Catch::Contains("did you mean 'eval/questions/choice/accuracy'?"));
  REQUIRE(run(directory, {"--set", "eval.datasets.questions.score_metrics.choice=MultipleChoise"},
              &output) == 2);
  REQUIRE_THAT(output, Catch::Contains("did you mean 'MultipleChoice'?"));
  REQUIRE(run(directory, {"--set", "eval.datasets.questions.score_metrics.choice.num_choices=1"},
              &output) == 2);
  REQUIRE_THAT(output, Catch::Contains("num_choices is 1, expected at least 2"));
}

}  // namespace
}  // namespace tessera
