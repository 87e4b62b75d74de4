// SPDX-License-Identifier: Apache-2.0
// A configuration as TOML: the dump, provenance in comments, exact reload, errors. The listing, the
// differences, and the origin of inherited values.
#include "core/hparams/text.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "core/hparams/tree.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using sample::FeedForward;
using sample::Leaky;
using sample::Model;
using sample::ReLU;
using sample::Rule;
using sample::Unary;

Template<Unary> reload(const Template<Unary>& tpl) {
  Template<Unary> read;
  from_tree(parse_toml(to_toml(to_tree(tpl)), "hparams.toml"), read);
  return read;
}

std::string error_reading(std::string_view text) {
  Template<Unary> read;
  return error_of([&] { from_tree(parse_toml(text, "hparams.toml"), read); });
}

TEST_CASE("A dump gives the origin of values") {
  Rule rule;
  rule.times = 2;
  Template<Unary> ffn = FeedForward::HParams{.hidden_dims = 8};
  Model::HParams p{.title = "a \"b\"\n", .rule = rule, .ffn_tpl = ffn};
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  const int line = __LINE__;
  set_path(p, "vocab_size", "50");
  const std::string file = "tests/core/hparams/text_test.cc";
  const std::string policy =
      R"({param = "f32", compute = "bf16", reduce = "f32", output = "f32", matmul = "compute"})";
  REQUIRE(to_toml(to_tree(p), "Model of a test.") == fmt::format(
                                                         R"(# Model of a test.
title = "a \"b\"\n"                       # experiment
num_layers = 2
rate = 0.001
padding = "same"
logits = "f32"
shape = [1, 4, 1]
rules = [{{pattern = "a.*", times = 2}}]
heads = []
# limit is unset
epsilon = 1e-06
vocab_size = 50                           # --set vocab_size=50
# spare_tpl is unset
dtypes = {2}  # {0}:{1}
# params_init is unset

[rule]
pattern = ".*"
times = 2                                 # experiment

[weights]

[ffn_tpl]
type = "FeedForward"                      # {0}:{4}
hidden_dims = 8                           # {0}:{3}
use_bias = true
# dtypes = {2}  # inherited from the top level
# params_init is unset

[ffn_tpl.activation_tpl]
type = "ReLU"
)",
                                                         file, line - 1, policy, line - 3,
                                                         line - 3));
}

TEST_CASE("A dump reads back to the same configuration") {
  Model::HParams p{.title = "quote \" backslash \\ newline \n tab \t bell \a del \x7f é 世界",
                   .num_layers = std::numeric_limits<int64_t>::min(),
                   .rate = 0.1 + 0.2,
                   .padding = sample::Padding::kValid,
                   .logits = DType::kBF16,
                   .rule = {"\\d+", 3},
                   .shape = {},
                   .rules = {{"x", 1}, {"y", 2}},
                   .heads = {ReLU::HParams{}, FeedForward::HParams{.hidden_dims = 3}},
                   .weights = {{"a.b", 1.0}, {"", 2.0}, {"plain", 1e300}},
                   .limit = 0,
                   .vocab_size = 11,
                   .ffn_tpl = Leaky::HParams{.slope = -0.0},
                   .spare_tpl = Leaky::HParams{.slope = 5e-324},
                   .params_init = WeightInit{InitKind::kGaussian, 0.02}};
  p.epsilon.reset();  // Its default is set.
  const Template<Unary> tpl = p;
  const Template<Unary> read = reload(tpl);
  REQUIRE(read == tpl);
  REQUIRE(std::signbit(read.as<Model::HParams>().ffn_tpl.as<Leaky::HParams>().slope));
  REQUIRE(to_tree(reload(read)).value_text() == to_tree(tpl).value_text());
}

TEST_CASE("Special and extreme numbers read back exactly") {
  for (const double value :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::nan(""), 0.0, -0.0, 1.0, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 1.0 / 3.0,
        123456789012345680.0}) {
    const Template<Unary> tpl = Leaky::HParams{.slope = value};
    INFO(to_toml(to_tree(tpl)));
    REQUIRE(reload(tpl) == tpl);
  }
}

TEST_CASE("An integral double stays a double, and an integer field refuses it") {
  REQUIRE(double_text(3.0) == "3.0");
  REQUIRE(double_text(1e22) == "1e+22");
  REQUIRE(error_reading("type = \"Model\"\nnum_layers = 2.0\n") ==
          "num_layers: got 2.0, expected an integer");
}

TEST_CASE("Values read from a file cite the file") {
  Template<Unary> read;
  from_tree(parse_toml("type = \"FeedForward\"\nhidden_dims = 4\n", "run/hparams.toml"), read);
  REQUIRE(read.as<FeedForward::HParams>().hidden_dims.provenance().text() == "run/hparams.toml");
}

TEST_CASE("Inherited values are inherited again after reading") {
  Model::HParams p{.vocab_size = 3, .ffn_tpl = FeedForward::HParams{.hidden_dims = 8}};
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  const Template<Unary> read = reload(p);
  REQUIRE(read == Template<Unary>(p));
  REQUIRE_FALSE(read.as<Model::HParams>().ffn_tpl.as<FeedForward::HParams>().dtypes.has());
  REQUIRE(read.instantiate()->text() == "ffn(8, bf16, relu)");
}

TEST_CASE("Errors in a file give the line") {
  REQUIRE(error_reading("type = \"Leaky\"\nslope = = 3\n").starts_with("hparams.toml:2: "));
  REQUIRE(error_reading("type = \"Leaky\"\nslop = 3\n") ==
          "no field 'slop' in Leaky; did you mean 'slope'?");
  REQUIRE(error_reading("type = \"Laeky\"\n") ==
          "no sample::Unary is named 'Laeky'; did you mean 'Leaky'?");
  REQUIRE(error_reading("slope = 3\n") ==
          "expected a `type`, one of Clipped, FeedForward, Leaky, Model, ReLU");
  REQUIRE(error_reading("type = \"Leaky\"\nslope = \"3\"\n") ==
          "slope: got \"3\", expected a number");
  REQUIRE(error_reading("type = \"Model\"\ntitle = 3\n") ==
          "title: got 3, expected text in quotes");
  REQUIRE(error_reading("type = \"Model\"\ntitle = 1979-05-27\n") ==
          "hparams.toml:2: a configuration cannot contain dates and times; write a string");
}

struct Root {
  static constexpr std::string_view kName = "Root";
  Template<Unary> model;
  FIELDS(model)
};

TEST_CASE("describe prints one line per value") {
  Root root;
  root.model = FeedForward::HParams{.hidden_dims = 8};
  const int line = __LINE__ - 1;
  set_path(root, "model.dtypes.compute", "bf16");
  Tree tree = to_tree(root);
  const std::string where = fmt::format("tests/core/hparams/text_test.cc:{}", line);
  const std::string policy =
      "model.dtypes = {param = \"f32\", compute = \"bf16\", reduce = \"f32\", output = \"f32\", "
      "matmul = \"compute\"}";
  const auto padded = [](std::string text) { return text.append(72 - text.size(), ' '); };
  REQUIRE(describe(tree) == padded("model = FeedForward") + "  # " + where + "\n" +
                                padded("model.hidden_dims = 8") + "  # " + where + "\n" +
                                padded("model.use_bias = true") + "  # default\n" +
                                padded("model.activation_tpl = ReLU") + "  # default\n" + policy +
                                "  # --set model.dtypes.compute=bf16\n" +
                                padded("model.params_init = unset") + "  # default\n");
}

TEST_CASE("describe folds equal layers, and lists what differs by layer") {
  Model::HParams model;
  for (const int64_t hidden : {8, 9, 8, 9})
    model.heads.emplace_back(FeedForward::HParams{
        .hidden_dims = hidden, .activation_tpl = Leaky::HParams{}, .dtypes = DTypePolicy{}});
  Root root;
  root.model = model;
  std::vector<std::string> heads;
  std::istringstream lines(describe(to_tree(root)));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model.heads")) heads.push_back(line.substr(0, line.find("  #")));
  for (std::string& each : heads) each.erase(each.find_last_not_of(' ') + 1);
  const std::string policy =
      " = {param = \"f32\", compute = \"f32\", reduce = \"f32\", output = \"f32\", "
      "matmul = \"compute\"}";
  REQUIRE(heads == std::vector<std::string>{
                       "model.heads[0..3] = FeedForward", "model.heads[0..3].use_bias = true",
                       "model.heads[0..3].activation_tpl = Leaky",
                       "model.heads[0..3].activation_tpl.slope = 0.01",
                       "model.heads[0..3].activation_tpl.dtypes" + policy,
                       "model.heads[0..3].dtypes" + policy, "model.heads[0..3].params_init = unset",
                       "model.heads[0,2].hidden_dims = 8", "model.heads[1,3].hidden_dims = 9"});
  REQUIRE_THAT(describe(to_tree(root)), Catch::Contains("# inherited from model.heads[]\n"));
}

TEST_CASE("Plain members can be marked as set on the command line") {
  Root root;
  root.model = Leaky::HParams{};
  set_path(root, "model.slope", "0.5");
  Tree tree = to_tree(root);
  note_command_line(tree, "model.slope=0.5");
  REQUIRE_THAT(describe(tree), Catch::Contains("# --set model.slope=0.5"));
  note_command_line(tree, "--smoke model.slope=0.5");
  REQUIRE(at_path(tree, "model.slope").provenance.origin == Origin::kFlag);
  REQUIRE_THAT(describe(tree), Catch::Contains("# --smoke\n"));
}

TEST_CASE("diff lists differences only") {
  Root before;
  before.model = FeedForward::HParams{.hidden_dims = 8};
  Root after = before;
  REQUIRE(diff(to_tree(before), to_tree(after)).empty());
  set_path(after, "model.hidden_dims", "16");
  set_path(after, "model.activation_tpl", "Leaky");
  REQUIRE(diff(to_tree(before), to_tree(after)) ==
          std::vector<std::string>{"model.hidden_dims: 8 -> 16",
                                   "model.activation_tpl: ReLU -> Leaky",
                                   "model.activation_tpl.slope: absent -> 0.01",
                                   "model.activation_tpl.dtypes: absent -> unset"});
}

TEST_CASE("A value inherited through several levels cites the struct that set it") {
  Model::HParams p{.vocab_size = 3};
  p.ffn_tpl.as<FeedForward::HParams>().activation_tpl = Leaky::HParams{};
  p.dtypes = DTypePolicy{};
  Root root;
  root.model = p;
  const Tree tree = resolved(to_tree(root));
  const Tree& inherited = at_path(tree, "model.ffn_tpl.activation_tpl.dtypes");
  REQUIRE(inherited.provenance.text() == "inherited from model");
  REQUIRE(missing_fields(tree) == std::vector<std::string>{"model.ffn_tpl.hidden_dims"});
}

TEST_CASE("A required field may be inherited") {
  Tree tree = Tree::table("Outer");
  Tree set = Tree::of(int64_t{4});
  set.role = Tree::Role::kField;
  set.type = &typeid(int64_t);
  tree.add("width", set);
  Tree required;
  required.role = Tree::Role::kRequired;
  required.type = &typeid(int64_t);
  tree.add("inner", Tree::table("Inner")).add("width", required);
  REQUIRE(missing_fields(tree) == std::vector<std::string>{"inner.width"});
  REQUIRE(missing_fields(resolved(tree)).empty());
  // A field with the same name and another type is not inherited.
  tree.find("inner")->find("width")->type = &typeid(double);
  REQUIRE(missing_fields(resolved(tree)) == std::vector<std::string>{"inner.width"});
}

}  // namespace
}  // namespace tessera
