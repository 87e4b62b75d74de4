// SPDX-License-Identifier: Apache-2.0
// The quickstart experiments from the command line.
#include <set>
#include <sstream>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += c;
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

TEST_CASE("CharLm learns a small text: loss, validation loss and a sample of its words") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += i % 3 == 0 ? "the quick brown fox jumps over the lazy dog.\n"
                       : "pack my box with five dozen liquor jugs.\n";
  write_bytes(directory / "text.txt", text);
  Child child(
      "runexp",
      {"--exp=CharLm", "--job_log_dir=" + (directory / "run").string(), "--threads=1", "--set",
       "input.path=" + (directory / "text.txt").string(), "--set", "num_train_steps=150", "--set",
       "model_dims=64", "--set", "hidden_dims=128", "--set", "num_layers=2", "--set",
       "warmup_steps=10", "--set", "learning_rate=0.003", "--set", "sample_length=200"},
      directory / "output.txt");
  const int code = child.wait();
  INFO(child.output());
  REQUIRE(code == 0);
  REQUIRE(std::stod(values_of(directory / "run", "loss").front()) == Approx(5.57).margin(0.1));
  REQUIRE(std::stod(values_of(directory / "run", "loss").back()) < 0.5);
  REQUIRE(std::stod(values_of(directory / "run", "eval/validation/log_pplx").back()) < 0.5);
  // The whole validation split, a tenth, is scored, except for its first byte.
  const std::string scored = values_of(directory / "run", "eval/validation/weight").back();
  const auto trained = static_cast<int64_t>(0.9 * static_cast<double>(text.size()));
  REQUIRE(std::stol(scored) == static_cast<int64_t>(text.size()) - trained - 1);

  REQUIRE(child.output().find("samples from the model") != std::string::npos);
  const std::string line = read_file(directory / "run/samples.jsonl");
  const Json sample = parse_json(line, "samples.jsonl");
  const std::set<std::string> known = words_of(text);
  int hits = 0, words = 0;
  for (const std::string& word : words_of(sample.at("continuation").as_string())) {
    ++words;
    hits += known.contains(word) ? 1 : 0;
  }
  REQUIRE(hits * 2 > words);
}

TEST_CASE("CharLm without a text is refused") {
  const TemporaryDirectory directory;
  const Ended ended =
      with_code(2, run_program(directory.path(), "runexp",
                               {"--exp=CharLm", "--job_log_dir=" + (directory / "run").string()},
                               {"input.path=" + (directory / "missing.txt").string()}));
  REQUIRE_THAT(ended.output, Catch::Contains("missing.txt"));
}

TEST_CASE("SourceLm starts on this repository's own sources") {
  const TemporaryDirectory directory;
  successful(run_program(directory.path(), "runexp",
                         {"--exp=SourceLm", "--job_log_dir=" + (directory / "run").string()},
                         {"num_train_steps=2", "global_batch_size=2", "sample_length=0",
                          "eval_inputs.validation.num_batches=2"}));
  REQUIRE(fs::exists(directory / "run/corpus.h5"));
  REQUIRE(values_of(directory / "run", "loss").size() == 2);
}

}  // namespace
}  // namespace tessera
