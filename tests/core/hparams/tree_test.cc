// SPDX-License-Identifier: Apache-2.0
// --set: values by dotted path from text, typed and checked.
#include "core/hparams/tree.h"

#include "core/hparams/convert.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using sample::Clipped;
using sample::FeedForward;
using sample::Leaky;
using sample::Model;
using sample::Padding;
using sample::Unary;

std::string error_for(std::string_view path, std::string_view text) {
  Model::HParams p;
  return error_of([&] { set_path(p, path, text); });
}

TEST_CASE("Text is parsed as the type of the field") {
  Model::HParams p;
  set_path(p, "title", "a = [b], c");
  REQUIRE(p.title == "a = [b], c");
  set_path(p, "title", "42");
  REQUIRE(p.title == "42");
  set_path(p, "title", R"("tab\there")");
  REQUIRE(p.title == "tab\there");
  set_path(p, "num_layers", "1_000");
  REQUIRE(p.num_layers == 1000);
  set_path(p, "num_layers", "-3");
  REQUIRE(p.num_layers == -3);
  set_path(p, "rate", "3");
  REQUIRE(p.rate == 3.0);
  set_path(p, "rate", "3e-4");
  REQUIRE(p.rate == 3e-4);
  set_path(p, "rate", "-inf");
  REQUIRE(std::isinf(p.rate));
  set_path(p, "padding", "valid");
  REQUIRE(p.padding == Padding::kValid);
  set_path(p, "logits", "bf16");
  REQUIRE(p.logits == DType::kBF16);
  set_path(p, "limit", "5");
  REQUIRE(p.limit == 5);
  set_path(p, "limit", "unset");
  REQUIRE_FALSE(p.limit.has_value());
  set_path(p, "epsilon", "1e-5");
  REQUIRE(p.epsilon.get() == 1e-5);
  REQUIRE(p.epsilon.provenance().text() == "--set epsilon=1e-5");
  set_path(p, "epsilon", "unset");
  REQUIRE_FALSE(p.epsilon.has());
}

TEST_CASE("Lists are set as a whole, with or without brackets, or by element") {
  Model::HParams p;
  set_path(p, "shape", "[2,2,1]");
  REQUIRE(p.shape == std::vector<int64_t>{2, 2, 1});
  set_path(p, "shape", "8, 1");
  REQUIRE(p.shape == std::vector<int64_t>{8, 1});
  set_path(p, "shape[1]", "4");
  set_path(p, "shape.0", "16");
  REQUIRE(p.shape == std::vector<int64_t>{16, 4});
  set_path(p, "shape", "[]");
  REQUIRE(p.shape.empty());
  set_path(p, "rules", R"([{pattern = "x, y", times = 3}, {times=4}])");
  REQUIRE(p.rules.size() == 2);
  REQUIRE(p.rules[0].pattern == "x, y");
  REQUIRE(p.rules[1].times == 4);
  REQUIRE(p.rules[1].pattern == ".*");
  set_path(p, "rules[1].pattern", "b");
  REQUIRE(p.rules[1].pattern == "b");
}

TEST_CASE("Structs are set in part, as a table or as name=value") {
  Model::HParams p;
  set_path(p, "rule.times", "7");
  REQUIRE(p.rule.times == 7);
  set_path(p, "rule", "{pattern = \"z\"}");
  REQUIRE(p.rule.pattern == "z");
  REQUIRE(p.rule.times == 7);
  set_path(p, "dtypes", "param=f32,compute=bf16");
  REQUIRE(p.dtypes.get().compute == DType::kBF16);
  set_path(p, "dtypes.output", "bf16");
  REQUIRE(p.dtypes.get().output == DType::kBF16);
  REQUIRE(p.dtypes.get().compute == DType::kBF16);
  set_path(p, "params_init.scale", "0.02");  // It was unset and starts with the defaults.
  REQUIRE(p.params_init.get() == WeightInit{InitKind::kXavier, 0.02});
}

TEST_CASE("A struct set in part starts with its inherited value") {
  Model::HParams p;
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  set_path(p, "ffn_tpl.dtypes.output", "bf16");
  const DTypePolicy policy = p.ffn_tpl.as<FeedForward::HParams>().dtypes.get();
  REQUIRE(policy.compute == DType::kBF16);
  REQUIRE(policy.output == DType::kBF16);
}

TEST_CASE("Integers may have an exponent or underscores") {
  REQUIRE(parse_integer("1e3") == 1000);
  REQUIRE(parse_integer("2.5E+3") == 2500);
  REQUIRE(parse_integer("1_000") == 1000);
  REQUIRE(parse_integer("-3e2") == -300);
  for (const char* text : {"", "e3", "1.5", "1.0", "1e-1", "1.25e1", "1e30", "nan", "1e3x"}) {
    INFO(text);
    REQUIRE_FALSE(parse_integer(text).has_value());
  }
  Model::HParams p;
  set_path(p, "shape", "[1e1, 2]");
  REQUIRE(p.shape == std::vector<int64_t>{10, 2});
}

TEST_CASE("Maps accept new keys") {
  Model::HParams p;
  set_path(p, "weights.main", "2");
  set_path(p, "weights.\"dotted.name\"", "0.5");
  REQUIRE(p.weights == std::map<std::string, double>{{"main", 2.0}, {"dotted.name", 0.5}});
}

TEST_CASE("Paths may lead into templates") {
  Model::HParams p;
  set_path(p, "ffn_tpl.hidden_dims", "64");
  REQUIRE(p.ffn_tpl.as<FeedForward::HParams>().hidden_dims.get() == 64);
}

TEST_CASE("A template replaced by name keeps the fields that both classes have") {
  Model::HParams p;
  set_path(p, "ffn_tpl.activation_tpl", "Leaky");
  const auto activation = [&p]() -> Template<Unary>& {
    return p.ffn_tpl.as<FeedForward::HParams>().activation_tpl;
  };
  REQUIRE(activation().as<Leaky::HParams>().slope == 0.01);
  // Defaults are not kept: the new class has its own.
  set_path(p, "ffn_tpl.activation_tpl", "Clipped");
  REQUIRE(activation().as<Clipped::HParams>().slope == 0.5);
  set_path(p, "ffn_tpl.activation_tpl.slope", "0.25");
  set_path(p, "ffn_tpl.activation_tpl", "Leaky");
  REQUIRE(activation().as<Leaky::HParams>().slope == 0.25);
  set_path(p, "ffn_tpl.activation_tpl", R"({type = "Clipped", limit = 1})");
  REQUIRE(activation().as<Clipped::HParams>().limit == 1.0);
  REQUIRE(activation().as<Clipped::HParams>().slope == 0.5);
  set_path(p, "spare_tpl", "ReLU");
  REQUIRE(p.spare_tpl.name() == "ReLU");
  set_path(p, "spare_tpl", "unset");
  REQUIRE_FALSE(p.spare_tpl.has());
  set_path(p, "heads", "[ReLU, {type = \"Leaky\", slope = 2}]");
  REQUIRE(p.heads.size() == 2);
  REQUIRE(p.heads[1].as<Leaky::HParams>().slope == 2.0);
}

TEST_CASE("Text of the wrong type is an error with the path") {
  REQUIRE(error_for("num_layers", "ten") == "num_layers: got ten, expected an integer");
  REQUIRE(error_for("num_layers", "1.5") == "num_layers: got 1.5, expected an integer");
  REQUIRE(error_for("num_layers", "99999999999999999999") ==
          "num_layers: got 99999999999999999999, expected an integer");
  REQUIRE(error_for("rate", "fast") == "rate: got fast, expected a number");
  REQUIRE(error_for("ffn_tpl.use_bias", "yes") ==
          "ffn_tpl.use_bias: got yes, expected true or false");
  REQUIRE(error_for("padding", "vaild") ==
          "padding: got 'vaild', expected one of same, valid; did you mean 'valid'?");
  REQUIRE(error_for("logits", "bf61") ==
          "no dtype 'bf61'; did you mean 'bf16'? (expected f64, f32, bf16, i32, u32 or bool) [in "
          "logits]");
  REQUIRE(error_for("shape[0]", "x") == "shape[0]: got x, expected an integer");
  REQUIRE(error_for("shape", "1,,2") == "shape[1]: got , expected an integer");
  REQUIRE(error_for("shape", "[1,2") == "shape: got [1,2, expected a list that ends with ]");
  REQUIRE(error_for("rule", "{times=2") == "rule: got {times=2, expected a table that ends with }");
  REQUIRE(error_for("dtypes", "bf16") ==
          "dtypes: got bf16, expected name=value, … or {name = value, …}");
}

TEST_CASE("An unknown name is an error with the nearest path") {
  REQUIRE(error_for("num_layer", "3") ==
          "no field 'num_layer' in Model; did you mean 'num_layers'?");
  REQUIRE(error_for("ffn_tpl.hiden_dims", "3") ==
          "no field 'ffn_tpl.hiden_dims' in FeedForward; did you mean 'ffn_tpl.hidden_dims'?");
  REQUIRE(error_for("hidden_dims", "3") ==
          "no field 'hidden_dims' in Model; did you mean 'ffn_tpl.hidden_dims'?");
  REQUIRE(error_for("rule.zzzzzz", "3") ==
          "no field 'rule.zzzzzz' in Rule (it has pattern, times)");
  REQUIRE(error_for("dtypes", "compute=f32,outptu=f32") ==
          "no field 'dtypes.outptu' in DTypePolicy; did you mean 'dtypes.output'?");
  REQUIRE(error_for("dtypes.outptu", "f32") ==
          "no field 'dtypes.outptu' in DTypePolicy; did you mean 'dtypes.output'?");
  REQUIRE(error_for("ffn_tpl.activation_tpl", "Laeky") ==
          "ffn_tpl.activation_tpl: no sample::Unary is named 'Laeky'; did you mean 'Leaky'?");
  REQUIRE(error_for("weights.a.b", "3") == "no field 'weights.a' in this map (it has )");
  REQUIRE(error_for("", "3") ==
          "the path is empty; expected one such as task.train.num_train_steps");
}

TEST_CASE("A path that goes too deep or beyond a list is an error") {
  REQUIRE(error_for("num_layers.x", "3") == "num_layers is a value (2) and has no field 'x'");
  REQUIRE(error_for("shape[3]", "3") ==
          "shape[3]: the list has 3 elements; set the whole list to change its length");
  REQUIRE(error_for("shape.first", "3") ==
          "shape is a list: got 'first', expected an index such as shape[0]");
  REQUIRE(error_for("spare_tpl.slope", "3") ==
          "spare_tpl is unset; give it a class first: --set spare_tpl=NAME");
}

}  // namespace
}  // namespace tessera
