// SPDX-License-Identifier: Apache-2.0
// Tests fields that FIELDS declares with About: their range, text and unit, and where these are
// checked.
#include <chrono>
#include <cmath>
#include <limits>

#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace mine {  // No `using namespace tessera`: FIELDS finds About by itself.

struct Knobs {
  static constexpr std::string_view kName = "Knobs";
  int64_t width = 4;
  double rate = 0.5;
  std::vector<double> weights = {1.0};
  std::map<std::string, double> shares;
  std::optional<int64_t> batches;
  double timeout = 2.0;
  double plain = 1.0;
  FIELDS(About(width, {.min = 1, .max = 64}),
         About(rate, "share of values set to 0 (\"dropout\"), or so", tessera::kRate),
         About(weights, tessera::kNotNegative), About(shares, {.below = 1}),
         About(batches, "-1: all", {.min = 1, .also = -1}),
         About(timeout, "how long to wait", {.unit = "s", .above = 0}), plain)
};

struct Forgetful {
  double listed = 0.0;
  bool forgotten = false;
  FIELDS(About(listed, "not the whole: a comma, a bracket (", tessera::kPositive))
};

struct Block {
  struct HParams {
    using Instance = Block;
    static constexpr std::string_view kName = "Block";
    tessera::Field<double> scale;
    tessera::Required<int64_t> dims;
    FIELDS(About(scale, {.max = 2}), About(dims, tessera::kSize))
  };
  explicit Block(const HParams&) {}
};

struct Stack {
  struct HParams {
    using Instance = Stack;
    static constexpr std::string_view kName = "Stack";
    tessera::Field<double> scale;
    tessera::Required<int64_t> dims;
    tessera::Template<Block> block_tpl = Block::HParams{};
    FIELDS(scale, dims, block_tpl)
  };
  explicit Stack(const HParams& p) { p.block_tpl.instantiate(); }
};

}  // namespace mine

namespace tessera {
namespace {

using mine::Knobs;

std::string refusal(const Knobs& knobs) {
  return error_of([&] { check_values(to_tree(knobs), "knobs"); });
}

TEST_CASE("FIELDS with About still lists every member by name") {
  STATIC_REQUIRE(detail::arity<Knobs>() == detail::count_names(Knobs::field_names()));
  STATIC_REQUIRE(detail::first_unlisted<mine::Forgetful>() == "forgotten");
  const Knobs knobs{.width = 8, .rate = 0.25};
  const Tree tree = to_tree(knobs);
  REQUIRE(tree.keys == std::vector<std::string>{"width", "rate", "weights", "shares", "batches",
                                                "timeout", "plain"});
  REQUIRE(tree.find("rate")->info->text == "share of values set to 0 (\"dropout\"), or so");
  REQUIRE(tree.find("plain")->info == nullptr);
  Knobs read;
  from_tree(tree, read);
  REQUIRE(read.rate == 0.25);
}

TEST_CASE("a number outside of the range of its field is refused, by path") {
  REQUIRE(refusal({}) == "no error");
  REQUIRE(refusal({.width = 0}) == "knobs: width is 0, expected 1 to 64");
  REQUIRE(refusal({.width = 65}) != "no error");
  REQUIRE(refusal({.width = 64, .rate = 0.0}) == "no error");
  REQUIRE(refusal({.rate = 1.0}) ==
          "knobs: rate is 1.0, expected at least 0 and below 1 (share of values set to 0 "
          "(\"dropout\"), or so)");
  REQUIRE(refusal({.weights = {0.5, -1.0}}) == "knobs: weights[1] is -1.0, expected at least 0");
  REQUIRE(refusal({.shares = {{"a", 0.5}, {"b", 1.0}}}) ==
          "knobs: shares.b is 1.0, expected below 1");
  REQUIRE(refusal({.batches = -1}) == "no error");
  REQUIRE(refusal({.batches = 0}) == "knobs: batches is 0, expected at least 1, or -1 (-1: all)");
  REQUIRE(refusal({.timeout = 0.0}) ==
          "knobs: timeout is 0.0, expected above 0 s (how long to wait)");
}

TEST_CASE("every real number must be finite in f32, with or without About") {
  for (const double number : {std::nan(""), std::numeric_limits<double>::infinity(), 1e308}) {
    const std::string expected = "expected a finite number (at most 3.4e38)";
    REQUIRE_THAT(refusal({.plain = number}), Catch::Contains(expected));
    REQUIRE_THAT(refusal({.timeout = number}), Catch::Contains(expected));
    REQUIRE_THAT(refusal({.weights = {number}}), Catch::Contains("weights[0] is"));
  }
  REQUIRE(refusal({.plain = -3e38}) == "no error");
}

TEST_CASE("a template checks its values when it is instantiated, those of inner ones by path") {
  mine::Stack::HParams p{.dims = 4};
  const auto made = [&] { return error_of([&] { Template<mine::Stack>(p).instantiate(); }); };
  REQUIRE(made() == "no error");
  p.scale = 3.0;  // In the range of the outer field; the inner one inherits it and has its own.
  REQUIRE(made() ==
          "Stack: block_tpl.scale is 3.0, expected at most 2; inherited from the top level");
  p.scale = 1.0;
  p.block_tpl.as<mine::Block::HParams>().dims = 0;
  REQUIRE_THAT(made(), Catch::StartsWith("Stack: block_tpl.dims is 0, expected 1 to 16777216"));
  REQUIRE_THAT(made(), Catch::EndsWith(fmt::format("; set at {}:{}", __FILE__, __LINE__ - 2)));
}

TEST_CASE("describe prints the text, unit and range of a field beside its value") {
  const std::string text = describe(to_tree(Knobs{}));
  REQUIRE_THAT(text, Catch::Contains("# default; how long to wait (above 0 s)\n"));
  REQUIRE_THAT(text, Catch::Contains("# default; 1 to 64\n"));
  REQUIRE_THAT(text, Catch::Contains("plain = 1.0      # default\n"));
}

TEST_CASE("a path is written exactly, and the error has the path that may be meant") {
  const auto error = [](std::string_view path) {
    return error_of([&] { has_root(Tree::table(), path); });
  };
  for (const char* path : {"a", "a.b[2].c", "a[0][1]", "a.\"b.c\".d", "a.\"b\\\"c\"", "a.b-c/d"})
    REQUIRE(error(path) == "no error");
  REQUIRE(error("num_layers.") == "'num_layers.' is not a path; did you mean 'num_layers'?");
  REQUIRE(error("num_layers]") == "'num_layers]' is not a path; did you mean 'num_layers'?");
  REQUIRE(error("task..train") == "'task..train' is not a path; did you mean 'task.train'?");
  REQUIRE(error("[task.train") == "'[task.train' is not a path; did you mean 'task.train'?");
  for (const char* path : {".a", "a[0", "a[0]]", "a[].b", "a.[0]", "a[0]b", "a.\"b", "a\"b\"", "."})
    REQUIRE(error(path) != "no error");
}

TEST_CASE("a key with quotation marks and backslashes is found under the path that names it") {
  Tree tree = Tree::table();
  const std::string key = "a\"b\\c.d[e]";
  tree.add(key, Tree::of(int64_t{7}));
  REQUIRE(at_path(tree, join_path("", key)).integer == 7);
}

TEST_CASE("a file with many keys is read in linear time, and one with too many is refused") {
  std::string keys, list = "x = [";
  for (int i = 0; i < 60'000; ++i) keys += fmt::format("key_{} = 1\n", i);
  const auto begin = std::chrono::steady_clock::now();
  const Tree tree = parse_toml(keys, "a.toml");
  REQUIRE(same_value(tree, tree));
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));  // Quadratic: 20.
  for (int i = 0; i < 70'000; ++i) list += "1, ";
  REQUIRE(error_of([&] { parse_toml("[a]\n" + list + "]", "a.toml"); }) ==
          "a.toml:2: a.x has 70000 elements, expected at most 65536");
  REQUIRE(error_of([&] { parse_toml(std::string(5'000'000, '\n'), "a.toml"); }) ==
          "a.toml: has 5000000 bytes, expected at most 4194304");
}

TEST_CASE("a message cuts a long value after 200 characters") {
  sample::Model::HParams p;
  const std::string message =
      error_of([&] { set_path(p, "num_layers", std::string(10'000, 'x')); });
  REQUIRE(message ==
          "num_layers: got " + std::string(200, 'x') + "… (10000 bytes), expected an integer");
}

}  // namespace
}  // namespace tessera
