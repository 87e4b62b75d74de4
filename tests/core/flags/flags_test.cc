// SPDX-License-Identifier: Apache-2.0
// Flags from a struct: parsing, help, and the arguments that give the struct again.
#include "core/flags/flags.h"

#include <sstream>

#include "tests/support/catch.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

enum class Colour { kRed, kDarkBlue };

struct Shared {
  static constexpr bool kInlined = true;
  bool smoke = false;
  std::vector<std::filesystem::path> folder;
  FIELDS(About(smoke, "make it small"),
         About(folder, "look here, too; may be repeated", {.unit = "DIR"}))
};

struct Sample {
  Shared shared;
  std::string name;
  int64_t processes = 1;
  std::optional<int64_t> seed;
  double rate = 0.5;
  Colour colour = Colour::kRed;
  std::optional<Colour> other;
  std::filesystem::path output = "out.txt";
  std::vector<std::string> set;
  std::vector<std::string> runs;
  FIELDS(shared, About(name, "whose it is", {.unit = "NAME"}),
         About(processes, "that run at the same time", {.min = 1, .max = 256}),
         About(seed, "of the draws", {.min = 0}), About(rate, "of failure", kRate),
         About(colour, "of the page"), About(other, "of its border"), output,
         About(set, "change a field", {.unit = "PATH=VALUE"}),
         About(runs, "to compare", {.unit = "RUN RUN ..."}))
};

Sample parsed(const Words& arguments, const ParseAdvice& advice = {}) {
  Sample sample;
  const std::vector<Flag> flags = flags_of(sample);
  read_flags(flags, split_flags(flags, arguments, advice));
  return sample;
}

std::string error_for(const Words& arguments, const ParseAdvice& advice = {}) {
  return error_of([&] { parsed(arguments, advice); });
}

TEST_CASE("every type of member is read, in both spellings") {
  const Sample sample =
      parsed({"--smoke", "--folder=a", "--folder", "b", "--name", "x", "--processes=1e2",
              "--seed=0", "--rate=0.25", "--colour=dark_blue", "--other=red", "--output=o", "--set",
              "a=1", "--set=b=-2", "--runs", "r", "s", "t"});
  REQUIRE(sample.shared.smoke);
  REQUIRE(sample.shared.folder == std::vector<std::filesystem::path>{"a", "b"});
  REQUIRE(sample.name == "x");
  REQUIRE(sample.processes == 100);
  REQUIRE(sample.seed == 0);
  REQUIRE(sample.rate == 0.25);
  REQUIRE(sample.colour == Colour::kDarkBlue);
  REQUIRE(sample.other == Colour::kRed);
  REQUIRE(sample.output == "o");
  REQUIRE(sample.set == Words{"a=1", "b=-2"});
  REQUIRE(sample.runs == Words{"r", "s", "t"});
  const Sample usual = parsed({});
  REQUIRE((usual.processes == 1 && !usual.seed && usual.output == "out.txt"));
  REQUIRE(parsed({"--set=", "--set", ""}).set == Words{"", ""});
}

TEST_CASE("a command line without sense says what is wrong and what is expected") {
  REQUIRE(error_for({"--nam=x"}) == "unknown flag --nam; did you mean --name?");
  REQUIRE(error_for({"--zzzzzzzz=1"}) == "unknown flag --zzzzzzzz; --help lists them");
  REQUIRE(error_for({"--smok", "--name=x"}) == "unknown flag --smok; did you mean --smoke?");
  REQUIRE(error_for({"--smoke=2"}) == "--smoke takes no value");
  REQUIRE(error_for({"--name"}) == "--name needs a value; --help says which");
  REQUIRE(error_for({"--name="}) == "--name needs a value; --help says which");
  REQUIRE(error_for({"--name=a", "--name=b"}) == "--name is given more than once");
  REQUIRE(error_for({"--smoke", "--smoke"}) == "--smoke is given more than once");
  REQUIRE(error_for({"-name=x"}) == "'-name=x' is not a flag; flags begin with --: --name=x?");
  REQUIRE(error_for({"word"}) == "'word' is not a flag; --help lists them");
  const ParseAdvice advice{
      .first = {"colour"},
      .for_flag = [](const std::string& given) { return "; not " + given; },
      .for_word = [](const std::string& word) { return "what is " + word + "?"; }};
  REQUIRE(error_for({"--zzzzzzzz=1"}, advice) ==
          "unknown flag --zzzzzzzz; --help lists them; not zzzzzzzz=1");
  REQUIRE(error_for({"word"}, advice) == "'word' is not a flag; what is word?");
  REQUIRE(error_for({"--colou"}, advice) == "unknown flag --colou; did you mean --colour?");
}

TEST_CASE("a value that its member cannot have is refused with the range or the names") {
  REQUIRE(error_for({"--processes=0"}) == "--processes=0: expected a whole number from 1 to 256");
  REQUIRE(error_for({"--processes=two"}) ==
          "--processes=two: expected a whole number from 1 to 256");
  REQUIRE(error_for({"--seed=-1"}) == "--seed=-1: expected a whole number, 0 or more");
  REQUIRE(error_for({"--rate=1"}) == "--rate=1: expected a number, at least 0 and below 1");
  for (const char* text : {"x", "0.1x", "nan", "-1"})
    REQUIRE_THAT(error_for({"--rate=" + std::string(text)}), Catch::Contains("expected a number"));
  REQUIRE(error_for({"--colour=blue"}) == "--colour=blue: expected one of red, dark_blue");
  REQUIRE(error_for({"--colour=rod"}) ==
          "--colour=rod: expected one of red, dark_blue; did you mean 'red'?");
  REQUIRE_THAT(error_for({"--output=gs://x/y"}),
               Catch::Contains("--output gs://x/y: gs:// is not a path of this machine"));
}

TEST_CASE("the arguments of a struct are what differs from the defaults, and read back to it") {
  REQUIRE(to_arguments(Sample{}).empty());
  const Words arguments = {
      "--smoke",      "--folder=a b",       "--folder=c",  "--name=x",   "--seed=0",
      "--rate=1e-05", "--colour=dark_blue", "--other=red", "--output=o", "--set",
      "a=1",          "--set=-b=2",         "--runs=r",    "--runs=s"};
  REQUIRE(to_arguments(parsed(arguments)) == arguments);
}

TEST_CASE("the help of a flag has its spelling, text, range, values and default") {
  Sample sample;
  std::vector<Flag> flags = flags_of(sample);
  REQUIRE(names_of(flags) == Words{"smoke", "folder", "name", "processes", "seed", "rate", "colour",
                                   "other", "output", "set", "runs"});
  REQUIRE(find_flag(flags, "seed")->info.text == "of the draws");
  REQUIRE(find_flag(flags, "seeds") == nullptr);
  flags[2].choices = {"ann", "bob"};
  const std::string help = flags_help(flags);
  for (const char* line :
       {"  --smoke                make it small\n",
        "  --folder=DIR           look here, too; may be repeated\n",
        "  --name=NAME            whose it is: ann, bob\n",
        "  --processes=N          that run at the same time (1 to 256; default: 1)\n",
        "  --seed=N               of the draws\n",
        "  --rate=X               of failure (at least 0 and below 1; default: 0.5)\n",
        "  --colour=red|dark_blue\n                         of the page (default: red)\n",
        "  --output=PATH          (default: out.txt)\n",
        "  --set PATH=VALUE       change a field\n", "  --runs RUN RUN ...     to compare\n"})
    REQUIRE_THAT(help, Catch::Contains(line));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) REQUIRE(line.size() <= 100);
}

}  // namespace
}  // namespace tessera
