// SPDX-License-Identifier: Apache-2.0
#include "core/io/json.h"

#include <limits>

#include "tests/support/catch.h"
#include "tests/support/fuzz.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("members keep their order and values") {
  const Json json =
      parse_json(R"({"b": [1, -2.5, "\u00e9\n"], "a": {"deep": null}, "t": true})", "config.json");
  REQUIRE(json.as_object().size() == 3);
  REQUIRE(json.as_object()[0].first == "b");
  const JsonArray& list = json.at("b").as_array();
  REQUIRE(list[0].as_integer() == 1);
  REQUIRE(list[0].as_number() == 1.0);
  REQUIRE(list[1].as_number() == -2.5);
  REQUIRE(list[2].as_string() == "\xc3\xa9\n");
  REQUIRE(json.at("a").at("deep").is_null());
  REQUIRE(json.at("t").as_bool());
  REQUIRE(json.find("none") == nullptr);
}

TEST_CASE("errors name the place in the document") {
  const Json json = parse_json(R"({"model": {"vocab": ["x"], "size": "12"}})", "tokenizer.json");
  REQUIRE_THROWS_WITH(json.at("model").at("size").as_integer(),
                      "tokenizer.json: model.size is a string, expected a whole number");
  REQUIRE_THROWS_WITH(json.at("model").at("vocab").as_array()[0].as_object(),
                      "tokenizer.json: model.vocab[0] is a string, expected an object");
  REQUIRE_THROWS_WITH(json.at("model").at("vocad"),
                      "tokenizer.json: model lacks 'vocad'; did you mean 'vocab'?");
}

TEST_CASE("invalid, deep and empty documents are refused") {
  REQUIRE_THROWS_WITH(parse_json("", "a"), Contains("a: not valid JSON"));
  REQUIRE_THROWS_WITH(parse_json("{\"a\": 1", "a"), Contains("a: not valid JSON"));
  REQUIRE_THROWS_WITH(parse_json("\"\xff\"", "a"), Contains("a: not valid JSON"));
  REQUIRE_THROWS_WITH(parse_json("[NaN, 1", "a"), Contains("a: not valid JSON"));
  REQUIRE_THROWS_WITH(parse_json("[nan]", "a"), Contains("a: not valid JSON"));
  REQUIRE_THROWS_WITH(parse_json(std::string(1000, '['), "a"), Contains("a: "));
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  REQUIRE_THROWS_WITH(parse_json(deep, "a"), "a: JSON nested more than 256 levels deep");
}

TEST_CASE("what only Python's JSON has is an error where it is used, and only there") {
  const Json json = parse_json(
      R"({"model_max_length": 1000000000000000019884624838656, "a": NaN, "b": [-Infinity, 1e999],)"
      R"( "say": "NaN, 1e999 and \"-Infinity\"", "whole": -9223372036854775808, "n": 1e300})",
      "config.json");
  REQUIRE(json.at("model_max_length").as_number() == 1e30);
  REQUIRE_THROWS_WITH(json.at("model_max_length").as_integer(),
                      "config.json: model_max_length is a number, expected a whole number");
  REQUIRE_THROWS_WITH(json.at("a").as_number(), "config.json: a is NaN, expected a number");
  REQUIRE_THROWS_WITH(json.at("b").as_array()[1].as_number(),
                      "config.json: b[1] is 1e999, expected a number");
  REQUIRE_THROWS_WITH(json.at("b").as_array()[0].as_string(),
                      "config.json: b[0] is -Infinity, expected a string");
  REQUIRE(json.at("say").as_string() == "NaN, 1e999 and \"-Infinity\"");
  REQUIRE(json.at("whole").as_integer() == std::numeric_limits<int64_t>::min());
  REQUIRE(json.at("n").as_number() == 1e300);
}

TEST_CASE("of members with equal names the last counts") {
  REQUIRE(parse_json(R"({"a": 1, "b": 2, "a": 3})", "t").at("a").as_integer() == 3);
}

TEST_CASE("nested long keys take bounded memory") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "{\"" + std::string(2000, 'k') + "\":";
  text += "1" + std::string(200, '}');
  const Json json = parse_json(text, "a");
  const Json* inner = &json;
  while (inner->is_object()) inner = &inner->as_object()[0].second;
  REQUIRE(inner->where().size() < 1000);
}

const std::vector<std::string> kSeeds = {
    R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})",
    R"({"n_embd": 64, "layer_norm_epsilon": 1e-05, "tie_word_embeddings": true, "x": [null, []]})"};

TEST_CASE("corrupted input is parsed or refused, never a crash") {
  const FuzzReport report = fuzz(
      "json", kSeeds, [](std::string_view text) { parse_json(text, "input"); }, kFastFuzz);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("a million corrupted inputs are parsed or refused, never a crash", "[full]") {
  fuzz(
      "json", kSeeds, [](std::string_view text) { parse_json(text, "input"); }, kFullFuzz);
}

}  // namespace
}  // namespace tessera
