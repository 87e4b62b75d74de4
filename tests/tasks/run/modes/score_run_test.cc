// SPDX-License-Identifier: Apache-2.0
// --mode=score: scores of a small model against its own eval and decoding, on meshes and in several
// processes, and requests that are not valid.
#include <cmath>
#include <fstream>
#include <thread>

#include "core/io/json.h"
#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLength = 80;  // The rows of the requests have four lengths.

ExperimentConfig scorable() {
  ExperimentConfig config = tiny_config(3);
  config.input.as<SyntheticInput::HParams>().seq_len = kLength;
  return config;
}

std::string ids_text(const std::vector<int64_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

std::string request(const std::vector<int64_t>& context, const std::vector<int64_t>& continuation) {
  return fmt::format("{{\"context_ids\": {}, \"continuation_ids\": {}}}\n", ids_text(context),
                     ids_text(continuation));
}

// Requests of all lengths up to that of the model and one token more.
std::string many_requests() {
  std::string text;
  uint64_t state = 7;
  const auto ids = [&](int64_t count) {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      list.push_back(static_cast<int64_t>((state >> 33) % 24));
    }
    return list;
  };
  for (int64_t i = 1; i <= 40; ++i) text += request(ids(i), ids(1 + i * i % 40));
  return text + request(ids(1), ids(kLength)) + request(ids(kLength), ids(1));
}

fs::path written(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  return file;
}

std::vector<Json> lines_of_scores(const fs::path& file) {
  std::vector<Json> lines;
  std::istringstream text(read_bytes(file));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  return lines;
}

RunWith scoring(const fs::path& requests, const fs::path& output) {
  RunWith options;
  options.mode = ScoringOptions{.requests = requests, .output = output, .with_log_probs = true};
  return options;
}

void require_same_scores(const std::vector<Json>& a, const std::vector<Json>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].at("log_likelihood").as_number() ==
            Approx(b[i].at("log_likelihood").as_number()).epsilon(1e-5));
    REQUIRE(a[i].at("is_greedy").as_bool() == b[i].at("is_greedy").as_bool());
    REQUIRE(a[i].at("log_probs").as_array().size() == b[i].at("log_probs").as_array().size());
  }
}

// One run that the cases score.
class Scored {
 public:
  Scored() : requests_(written(directory_ / "requests.jsonl", many_requests())) {
    REQUIRE(run_tiny(scorable(), run()) == 0);
    expected_ = scores(scorable(), {});
  }
  fs::path run() const { return directory_ / "run"; }
  const TemporaryDirectory& directory() const { return directory_; }
  const fs::path& requests() const { return requests_; }
  const std::vector<Json>& expected() const { return expected_; }
  std::vector<Json> scores(const ExperimentConfig& config, RunWith options) {
    options.mode = scoring(requests_, directory_ / "scores.jsonl").mode;
    REQUIRE(run_tiny(config, run(), options) == 0);
    return lines_of_scores(directory_ / "scores.jsonl");
  }

 private:
  const TemporaryDirectory directory_;
  fs::path requests_;
  std::vector<Json> expected_;
};

TEST_CASE(
    "the score of a continuation is the sum over its tokens, and of a text that of its parts") {
  Scored scored;
  for (const Json& line : scored.expected()) {
    double sum = 0.0;
    for (const Json& each : line.at("log_probs").as_array()) sum += each.as_number();
    REQUIRE(line.at("tokens").as_integer() == std::ssize(line.at("log_probs").as_array()));
    REQUIRE(line.at("log_likelihood").as_number() == Approx(sum).epsilon(1e-5));
    REQUIRE(sum < 0.0);
  }
  // log p(b c | a) = log p(b | a) + log p(c | a b), also in rows of another length.
  const std::vector<int64_t> a = {1, 2, 3}, b = {4, 5}, c(60, 6);
  std::vector<int64_t> ab = a, bc = b;
  ab.insert(ab.end(), b.begin(), b.end());
  bc.insert(bc.end(), c.begin(), c.end());
  const fs::path file = written(scored.directory() / "parts.jsonl",
                                request(a, bc) + "\n" + request(a, b) + request(ab, c));
  REQUIRE(run_tiny(scorable(), scored.run(), scoring(file, "")) == 0);
  const std::vector<Json> parts =
      lines_of_scores(scored.run() / "score_out/parts_step_0000000003.jsonl");
  REQUIRE(parts.size() == 3);
  REQUIRE(
      parts[0].at("log_likelihood").as_number() ==
      Approx(parts[1].at("log_likelihood").as_number() + parts[2].at("log_likelihood").as_number())
          .epsilon(1e-5));
}

TEST_CASE("all checkpoints of a run are scored, each as if it were scored alone") {
  const TemporaryDirectory directory;
  ExperimentConfig config = scorable();
  task_of(config).train.save_interval_steps = 1;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const fs::path file = written(directory / "some.jsonl", request({1, 2}, {3}) + request({4}, {5}));
  RunWith options = scoring(file, "");
  std::get<ScoringOptions>(options.mode).checkpoint = {CheckpointChoice::Kind::kAll};
  REQUIRE(run_tiny(config, directory / "run", options) == 0);
  for (const int64_t step : {1, 2, 3}) {
    options = scoring(file, directory / "alone.jsonl");
    std::get<ScoringOptions>(options.mode).checkpoint = {CheckpointChoice::Kind::kStep, step};
    REQUIRE(run_tiny(config, directory / "run", options) == 0);
    REQUIRE(read_bytes(directory / fmt::format("run/score_out/some_step_{:010}.jsonl", step)) ==
            read_bytes(directory / "alone.jsonl"));
  }
}

TEST_CASE("what greedy decoding gives is greedy, with the log-probability of decoding") {
  Scored scored;
  ExperimentConfig config = scorable();
  DecodeHParams& p = task_of(config).decode;
  p.strategy = DecodeStrategy::kGreedy;
  p.max_decode_steps = 6;
  p.prompt_length = 4;
  p.num_examples = 5;
  RunWith decoding;
  decoding.mode = DecodeOptions{};
  REQUIRE(run_tiny(config, scored.run(), decoding) == 0);
  const std::vector<Json> decoded =
      lines_of_scores(scored.run() / "decoder_out/validation/step_0000000003.jsonl");
  std::string text;
  const auto ids = [](const Json& list) {
    std::vector<int64_t> values;
    for (const Json& each : list.as_array()) values.push_back(each.as_integer());
    return values;
  };
  for (const Json& line : decoded) {
    std::vector<int64_t> other = ids(line.at("ids"));
    text += request(ids(line.at("prompt_ids")), other);
    other.back() = (other.back() + 1) % 24;
    text += request(ids(line.at("prompt_ids")), other);
  }
  const fs::path file = written(scored.directory() / "greedy.jsonl", text);
  REQUIRE(run_tiny(config, scored.run(), scoring(file, scored.directory() / "greedy.out")) == 0);
  const std::vector<Json> lines = lines_of_scores(scored.directory() / "greedy.out");
  REQUIRE(lines.size() == 10);
  for (size_t i = 0; i < decoded.size(); ++i) {
    REQUIRE(lines[2 * i].at("is_greedy").as_bool());
    REQUIRE_FALSE(lines[2 * i + 1].at("is_greedy").as_bool());
    REQUIRE(lines[2 * i].at("log_likelihood").as_number() ==
            Approx(decoded[i].at("log_probability").as_number()).epsilon(1e-4));
  }
}

TEST_CASE("scores do not depend on the size of a batch, the mesh or the number of processes") {
  Scored scored;
  RunWith options = scoring(scored.requests(), scored.directory() / "small.jsonl");
  options.of_mode<ScoringOptions>().batch_tokens = 100;
  REQUIRE(run_tiny(scorable(), scored.run(), options) == 0);
  require_same_scores(lines_of_scores(scored.directory() / "small.jsonl"), scored.expected());

  for (const Strategy strategy : {Strategy::kFullyShardedTensor, Strategy::kFullyShardedSequence}) {
    CAPTURE(enum_name(strategy));
    ExperimentConfig config = scorable();
    config.rules = strategy_rules(strategy);
    config.mesh.ici_mesh_shape = {1, 2, 2};
    RunWith on_mesh;
    on_mesh.devices = 4;
    require_same_scores(scored.scores(config, on_mesh), scored.expected());
    on_mesh = scoring(scored.requests(), scored.directory() / "processes.jsonl");
    on_mesh.devices = 2;
    const auto transports = make_loopback(2);
    std::vector<int> codes(2, -1);
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          ProcessGroup processes(transports[rank], std::chrono::seconds(60));
          codes[rank] = run_tiny(config, scored.run(), on_mesh, processes);
        });
    }
    REQUIRE(codes == std::vector<int>{0, 0});
    require_same_scores(lines_of_scores(scored.directory() / "processes.jsonl"), scored.expected());
  }
}

std::string answer(const std::string& task, int64_t example, bool is_target, int64_t characters,
                   const std::vector<int64_t>& context, const std::vector<int64_t>& continuation) {
  std::string line = request(context, continuation);
  line.resize(line.size() - 2);
  return line + fmt::format(
                    ", \"task\": \"{}\", \"example\": {}, \"is_target\": {}, "
                    "\"characters\": {}}}\n",
                    task, example, is_target, characters);
}

TEST_CASE("eval.harness gives the accuracies and perplexities that follow from the scores") {
  Scored scored;
  // Questions of three answers, of which every second has its best answer as the target.
  std::string text, plain;
  const auto context = [](int64_t question) {
    return std::vector<int64_t>{question % 24, 3 * question % 24, 9};
  };
  constexpr int64_t kQuestions = 10, kAnswers = 3;
  const auto continuation = [](int64_t question, int64_t i) {
    return std::vector<int64_t>(static_cast<size_t>(i + 1), (5 * question + 7 * i) % 24);
  };
  for (int64_t question = 0; question < kQuestions; ++question)
    for (int64_t i = 0; i < kAnswers; ++i)
      plain += request(context(question), continuation(question, i));
  const fs::path file = written(scored.directory() / "plain.jsonl", plain);
  REQUIRE(run_tiny(scorable(), scored.run(), scoring(file, scored.directory() / "plain.out")) == 0);
  const std::vector<Json> lines = lines_of_scores(scored.directory() / "plain.out");
  double right = 0.0, right_norm = 0.0, greedy = 0.0, nats = 0.0;
  for (int64_t question = 0; question < kQuestions; ++question) {
    const auto score = [&](int64_t i) {
      return lines[static_cast<size_t>(question * kAnswers + i)].at("log_likelihood").as_number();
    };
    const int64_t target = question % kAnswers;
    bool is_best = true, is_best_norm = true;
    for (int64_t i = 0; i < kAnswers; ++i) {
      text += answer("choice", question, i == target, 2 * i + 1, context(question),
                     continuation(question, i));
      is_best = is_best && score(target) >= score(i);
      is_best_norm = is_best_norm && score(target) / static_cast<double>(2 * target + 1) >=
                                         score(i) / static_cast<double>(2 * i + 1);
    }
    text += answer("word", question, true, 0, context(question), continuation(question, 0));
    right += is_best;
    right_norm += is_best_norm;
    nats -= score(0);
    greedy += lines[static_cast<size_t>(question * kAnswers)].at("is_greedy").as_bool();
  }
  REQUIRE(right > 0.0);
  REQUIRE(right < kQuestions);

  ExperimentConfig config = scorable();
  config.eval.harness = written(scored.directory() / "harness.jsonl", text).string();
  config = with_all_evals(config);
  RunWith evaluation;
  evaluation.mode = EvalOptions{};
  REQUIRE(run_tiny(config, scored.run(), evaluation) == 0);
  const Json line = lines_of_scores(scored.run() / "eval_out/harness.jsonl").at(0);
  const auto value = [&](const std::string& name) {
    return line.at("questions/" + name).as_number();
  };
  REQUIRE(value("choice_accuracy") == Approx(right / kQuestions));
  REQUIRE(value("choice_accuracy_norm") == Approx(right_norm / kQuestions));
  REQUIRE(value("word_accuracy") == Approx(greedy / kQuestions));
  REQUIRE(value("word_perplexity") == Approx(std::exp(nats / kQuestions)).epsilon(1e-4));
  REQUIRE(line.find("questions/choice_perplexity") == nullptr);
}

TEST_CASE("requests that are not valid are refused with their line") {
  Scored scored;
  const auto message = [&](const std::string& text) {
    const fs::path file = written(scored.directory() / "bad.jsonl", request({1}, {2}) + text);
    return error_of(
        [&] { run_tiny(scorable(), scored.run(), scoring(file, scored.directory() / "bad.out")); });
  };
  const auto refuses = [&](const std::string& text, const std::string& expected) {
    CAPTURE(text);
    REQUIRE_THAT(message(text), Catch::Contains("bad.jsonl:2: ") && Catch::Contains(expected));
  };
  refuses(request({1}, {}), "the continuation is empty");
  refuses(request({}, {1}), "context_ids is empty");
  refuses(request({1}, {24}), "continuation_ids[0] is 24, expected an id from 0 to 23");
  refuses(request({-1}, {2}), "context_ids[0] is -1");
  refuses(request({1}, std::vector<int64_t>(kLength + 1, 3)),
          "have 82 tokens together, expected at most 81");
  refuses("{\"context_ids\": [1], \"continuation_ids\": [2", "request");
  refuses("{\"context_ids\": [1.5], \"continuation_ids\": [2]}", "expected a whole number");
  refuses("{\"context_ids\": [1]}", "continuation_ids");
  refuses("{\"context\": \"1\", \"context_ids\": [1]}", "text and ids");
  refuses("{\"contxt\": \"1\"}", "no member 'contxt'; did you mean 'context'?");
  refuses("[1]", "expected an object");
  refuses("{\"context\": \"1 2\", \"continuation\": \"\"}", "the continuation is empty");
  refuses("{\"context\": \"\", \"continuation\": \"\"}", "the continuation is empty");
  REQUIRE(message("{\"context\": \"1 2\", \"continuation\": \" 3\"}") == "no error");
  const fs::path empty = written(scored.directory() / "empty.jsonl", "\n");
  REQUIRE_THAT(error_of([&] { run_tiny(scorable(), scored.run(), scoring(empty, "")); }),
               Catch::Contains("has no requests"));
}

}  // namespace
}  // namespace tessera
