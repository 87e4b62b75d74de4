// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/remapping.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Contains;
using Names = std::vector<std::string>;

const Names kHere = {"lm/embedding", "lm/layer_0/ffn", "lm/layer_1/ffn", "lm/head"};
const Names kThere = {"model/embedding", "model/block_0/mlp", "model/block_1/mlp"};

Names pairs(const std::vector<NameMatch>& matches) {
  Names text;
  for (const NameMatch& match : matches) text.push_back(match.destination + " <- " + match.source);
  return text;
}

TEST_CASE("the first rule that matches a whole name gives its source, with groups filled in") {
  const RemappingRules rules{.rules = {{"lm/layer_(\\d+)/ffn", "model/block_$1/mlp"},
                                       {"lm/(embedding|layer_0)", "model/$1"}}};
  REQUIRE(pairs(match_names(kHere, kThere, rules)) == Names{"lm/embedding <- model/embedding",
                                                            "lm/layer_0/ffn <- model/block_0/mlp",
                                                            "lm/layer_1/ffn <- model/block_1/mlp"});
}

TEST_CASE("a rule may keep the name, and ignored names keep their initial values") {
  const RemappingRules rules{.rules = {{".*", "$0"}}, .ignore = {"lm/head", "lm/layer_.*"}};
  REQUIRE(pairs(match_names(kHere, kHere, rules)) == Names{"lm/embedding <- lm/embedding"});
}

TEST_CASE("mistakes in load rules are errors that name the rule") {
  REQUIRE_THROWS_WITH(match_names(kHere, kThere, {.rules = {{"lm/embedding", "model/embeding"}}}),
                      Contains("'model/embeding'") && Contains("did you mean 'model/embedding'"));
  REQUIRE_THROWS_WITH(match_names(kHere, kThere, {.rules = {{"lm/hed", "model/embedding"}}}),
                      Contains("'lm/hed' matches no parameter") && Contains("'lm/head'"));
  REQUIRE_THROWS_WITH(match_names(kHere, kHere, {.rules = {{".*", "$0"}}, .ignore = {"x"}}),
                      Contains("'x' matches no parameter"));
  REQUIRE_THROWS_WITH(match_names(kHere, kThere, {.rules = {{"lm/(", "x"}}}),
                      Contains("not a regular expression"));
  REQUIRE(match_names(kHere, kThere, {.rules = {{"lm/hed", "x"}}, .safe = false}).empty());
}

}  // namespace
}  // namespace tessera
