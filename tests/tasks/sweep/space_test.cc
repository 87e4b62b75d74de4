// SPDX-License-Identifier: Apache-2.0
// The space of a sweep, in code, on the command line and in a file, and its trials.
#include <cmath>
#include <set>

#include "core/io/file.h"
#include "tasks/sweep/space_text.h"
#include "tasks/sweep/trials.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::vector<std::string> texts_of(const Sweep& sweep) {
  std::vector<std::string> texts;
  for (const SweepTrial& trial : trials_of(sweep)) texts.push_back(trial.text());
  return texts;
}

std::string axis_error(const std::string& text) {
  return error_of([&] { parse_axis(text); });
}

using Texts = std::vector<std::string>;

TEST_CASE("a grid has every combination, and its last axis changes fastest") {
  const Sweep sweep = grid({{"learning_rate", {1e-3, 3e-4}},
                            {"strategy", {Strategy::kTensor, Strategy::kFullySharded}},
                            {"packed", {true}}});
  REQUIRE(texts_of(sweep) == Texts{"learning_rate=0.001 strategy=tensor packed=true",
                                   "learning_rate=0.001 strategy=fsdp packed=true",
                                   "learning_rate=0.0003 strategy=tensor packed=true",
                                   "learning_rate=0.0003 strategy=fsdp packed=true"});
  REQUIRE(trials_of(sweep)[2].directory() == "trial_0003");
}

TEST_CASE("values may be given as text, and an axis may have only one") {
  REQUIRE(texts_of(grid({{"ici_mesh_shape", {"[1,4,1]", "[1,2,2]"}}})) ==
          Texts{"ici_mesh_shape=[1,4,1]", "ici_mesh_shape=[1,2,2]"});
  REQUIRE(texts_of(grid({{"num_layers", {4}}})) == Texts{"num_layers=4"});
}

TEST_CASE("a random trial depends on the seed, its number and its own path only") {
  const std::vector<SweepAxis> one = {{"rate", log_uniform(1e-4, 1e-2)}};
  const std::vector<SweepAxis> two = {{"layers", {2, 4, 8}}, {"rate", log_uniform(1e-4, 1e-2)}};
  const std::vector<SweepTrial> few = trials_of(random_space(one, 3, 7));
  const std::vector<SweepTrial> many = trials_of(random_space(two, 30, 7));
  for (size_t i = 0; i < few.size(); ++i) REQUIRE(few[i].settings[0] == many[i].settings[1]);
  REQUIRE(texts_of(random_space(one, 3, 7)) != texts_of(random_space(one, 3, 8)));
}

TEST_CASE("random values stay within their bounds and reach all of the range") {
  const Sweep sweep = random_space({{"linear", uniform(-1.0, 3.0)},
                                    {"rate", log_uniform(1e-4, 1e-2)},
                                    {"heads", uniform_integer(2, 5)},
                                    {"kind", {"a", "b"}}},
                                   400);
  int below = 0, low_decade = 0;
  std::set<std::string> heads, kinds;
  for (const SweepTrial& trial : trials_of(sweep)) {
    const double linear = std::stod(trial.settings[0].value);
    const double rate = std::stod(trial.settings[1].value);
    REQUIRE((linear >= -1.0 && linear <= 3.0 && rate >= 1e-4 && rate <= 1e-2));
    below += linear < 1.0 ? 1 : 0;
    low_decade += rate < 1e-3 ? 1 : 0;
    heads.insert(trial.settings[2].value);
    kinds.insert(trial.settings[3].value);
  }
  // 200 of 400 are expected; the standard deviation is 10.
  REQUIRE(std::abs(below - 200) < 50);
  REQUIRE(std::abs(low_decade - 200) < 50);
  REQUIRE(heads == std::set<std::string>{"2", "3", "4", "5"});
  REQUIRE(kinds == std::set<std::string>{"a", "b"});
}

TEST_CASE("an impossible space is an error that says what is wrong") {
  const auto error = [](const Sweep& sweep) { return error_of([&] { trials_of(sweep); }); };
  REQUIRE(error({}) == "the sweep varies nothing");
  REQUIRE_THAT(error(grid({{"a", {1}}, {"a", {2}}})), Catch::Contains("gives a twice"));
  REQUIRE_THAT(error(grid({{"a", {}}})), Catch::Contains("gives no value for a"));
  REQUIRE_THAT(error(grid({{"a", uniform(0, 1)}})), Catch::Contains("--sweep_trials=20"));
  REQUIRE_THAT(error(random_space({{"a", uniform(1, 1)}}, 3)), Catch::Contains("the lower first"));
  REQUIRE_THAT(error(random_space({{"a", log_uniform(0, 1)}}, 3)),
               Catch::Contains("is 0, expected more than 0"));
  REQUIRE_THAT(error(random_space({{"a", {1}}}, 10000)), Catch::Contains("more than 9999 trials"));
  REQUIRE_THAT(
      error(grid({{"a", parse_axis("a=1..200").values}, {"b", parse_axis("b=1..200").values}})),
      Catch::Contains("more than 9999 trials"));
}

TEST_CASE("--sweep lists values, ranges and texts with brackets and quotes") {
  const auto listed = [](const std::string& text) { return parse_axis(text).values.listed; };
  REQUIRE(listed("task.learner.rate=1e-3, 3e-4") == Texts{"1e-3", "3e-4"});
  REQUIRE(listed("seed=1..3,8") == Texts{"1", "2", "3", "8"});
  REQUIRE(listed("ici_mesh_shape=[1,4,1],[1,2,2]") == Texts{"[1,4,1]", "[1,2,2]"});
  REQUIRE(listed("ln={type = \"LayerNorm\", epsilon = 1e-5},RmsNorm") ==
          Texts{"{type = \"LayerNorm\", epsilon = 1e-5}", "RmsNorm"});
  REQUIRE(listed("path=../data,\"a,b\"") == Texts{"../data", "\"a,b\""});
  REQUIRE(listed("kind=choice(a,b)") == Texts{"a", "b"});
  REQUIRE(parse_axis("rate=log_uniform(1e-4, 1e-2)").values.kind == SweepValues::Kind::kLogUniform);
  REQUIRE(parse_axis("rate=uniform(0,0.3)").values.high == 0.3);
  REQUIRE(parse_axis("n=uniform_integer(2,8)").values.low == 2.0);
}

TEST_CASE("wrong text of --sweep is an error that cites it") {
  REQUIRE_THAT(axis_error("rate"), Catch::StartsWith("--sweep=rate: expected PATH=VALUES"));
  REQUIRE_THAT(axis_error("rate="), Catch::Contains("there are no values"));
  REQUIRE_THAT(axis_error("rate=1,,2"), Catch::Contains("a value is empty"));
  REQUIRE_THAT(axis_error("rate=[1,2"), Catch::Contains("brackets do not match"));
  REQUIRE_THAT(axis_error("rate=\"a"), Catch::Contains("is not closed"));
  REQUIRE_THAT(axis_error("rate=3..1"), Catch::Contains("the range 3..1 is empty"));
  REQUIRE_THAT(axis_error("rate=loguniform(1,2)"), Catch::Contains("did you mean 'log_uniform'?"));
  REQUIRE_THAT(axis_error("rate=uniform(1)"), Catch::Contains("takes two bounds"));
  REQUIRE_THAT(axis_error("rate=uniform(a,b)"), Catch::Contains("got a, expected"));
  REQUIRE_THAT(axis_error("n=uniform_integer(1,2.5)"), Catch::Contains("takes whole numbers"));
}

TEST_CASE("a file has the space, and the seed, metric and goal") {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder / "sweep.toml";
  write_file_atomically(file,
                        "trials = 5\n"
                        "seed = 3\n"
                        "metric = \"eval/validation/accuracy\"\n"
                        "goal = \"max\"\n"
                        "[space]\n"
                        "num_layers = [2, 4]\n"
                        "task.train.seed = \"1..3\"\n"
                        "task.learner.rate = \"log_uniform(1e-4,1e-2)\"\n");
  const Sweep sweep = parse_sweep({file.string()});
  REQUIRE((sweep.num_trials == 5 && sweep.seed == 3 && sweep.goal == SweepGoal::kMax));
  REQUIRE(sweep.metric == "eval/validation/accuracy");
  std::set<std::string> paths;
  for (const SweepAxis& axis : sweep.axes) paths.insert(axis.path);
  REQUIRE(paths == std::set<std::string>{"num_layers", "task.train.seed", "task.learner.rate"});
  const auto error = [&](const std::string& text) {
    write_file_atomically(file, text);
    return error_of([&] { parse_sweep({file.string()}); });
  };
  REQUIRE_THAT(error("trails = 5\n[space]\na = [1]\n"), Catch::Contains("trails"));
  REQUIRE_THAT(error("trials = \"many\"\n[space]\na = [1]\n"), Catch::Contains("an integer"));
  REQUIRE_THAT(error("seed = 1\n"), Catch::Contains("expected a table [space]"));
  REQUIRE_THAT(error("[space]\na = \"uniform(1)\"\n"), Catch::Contains("space.a: uniform takes"));
  REQUIRE_THAT(error("[space\n"), Catch::Contains("sweep.toml:1"));
  REQUIRE_THAT(error_of([&] {
                 parse_sweep({"a=1", file.string()});
               }),
               Catch::Contains("give no other --sweep"));
  REQUIRE_THAT(error_of([&] { parse_sweep({"absent.toml"}); }), Catch::Contains("absent.toml"));
}

}  // namespace
}  // namespace tessera
