// SPDX-License-Identifier: Apache-2.0
// Tests the lines that list what a search excludes, with a size that would include it.
#include "tasks/search/space.h"
#include "tests/support/catch.h"
#include "tests/tasks/search/small_recipe.h"

namespace tessera {
namespace {

std::vector<std::string> texts_of(const Exclusions& exclusions) {
  std::vector<std::string> texts;
  for (const LeftOut& group : exclusions.groups())
    texts.push_back(std::to_string(group.count) + " " + group.reason);
  return texts;
}

// Exclusions of the small recipe with this setting.
std::vector<std::string> excluded_with(const std::string& setting, int64_t devices) {
  const Recipe recipe = read_recipe(with_settings(small_recipe(), {setting}), 1);
  return texts_of(Space(recipe, {.devices = {devices}}).exclusions());
}

TEST_CASE("an odd vocabulary excludes all tensor parallelism, and a padded one would not") {
  const std::vector<std::string> texts = excluded_with("task.model.lm_tpl.vocab_size=50257", 4);
  REQUIRE_THAT(texts.at(0),
               Catch::EndsWith(" vocab=50257 (lm.softmax.w) cannot be divided among mdl=2, 4, so "
                               "nothing is split over mdl; a vocabulary padded to 50260 can"));
}

TEST_CASE("a batch, layers and heads that cannot be divided each have a line") {
  const auto begins = [](const std::vector<std::string>& texts, const std::string& with) {
    for (const std::string& text : texts)
      if (text.find(with) != std::string::npos) return true;
    return false;
  };
  const std::vector<std::string> texts = excluded_with("input.global_batch_size=12", 8);
  REQUIRE(begins(texts, " global_batch_size=12 cannot be divided among "));
  REQUIRE(begins(texts, "global_batch_size=16 can"));
  REQUIRE(begins(texts, " layers=2 cannot be divided among stage=4, 8; layers=4 can among 4"));
  REQUIRE(begins(texts, " heads=12 (lm.transformer.x_layers[].attention"));
  REQUIRE(begins(texts, " cannot be divided among mdl=8; heads=16 can"));
  REQUIRE(begins(excluded_with("task.model.lm_tpl.num_layers=32", 32),
                 "pipelines of more than 16 stages are not searched"));
}

TEST_CASE("of many divisors the size is one that little padding makes divisible by most") {
  Exclusions exclusions;
  for (const int64_t parts : {2, 4, 8, 16, 32, 512})
    exclusions.add("vocab", "w", 50257, "mdl", parts);
  for (const int64_t parts : {8, 16}) exclusions.add("heads", "", 12, "mdl", parts);
  exclusions.add("no such axis");
  REQUIRE(
      texts_of(exclusions) ==
      std::vector<std::string>{
          "6 vocab=50257 (w) cannot be divided among mdl=2, 4, ..., 512; a vocabulary padded to "
          "50688 can",
          "2 heads=12 cannot be divided among mdl=8, 16; heads=16 can", "1 no such axis"});
}

}  // namespace
}  // namespace tessera
