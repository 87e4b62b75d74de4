// SPDX-License-Identifier: Apache-2.0
#include "core/io/file.h"
#include "tasks/recipes/recipe_data.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Commands = std::vector<std::string>;

TEST_CASE("a recipe's missing files come with the commands that make them, in order",
          "[missing_files]") {
  const TemporaryDirectory directory;
  const auto path = [&](const std::string& name) { return (directory / name).string(); };
  const RecipeFile text{path("data/text/*.json.gz"), "text", {"fetch"}};
  const RecipeFile vocabulary{path("data/vocabulary.model"), "tokenizer", {"train"}};
  const RecipeFile tokens{path("tokens/all.h5"), "tokens_path", {"build", "check"}};
  const auto missing = [&] { return missing_files({text, vocabulary}, {tokens}, "Advice."); };

  // The download makes data/text, hence data.
  REQUIRE(missing()->what == tokens.path + " does not exist (tokens_path)");
  REQUIRE(missing()->commands ==
          Commands{"fetch", "train", "mkdir -p " + path("tokens"), "build", "check"});
  REQUIRE(missing()->advice == "Advice.");

  write_bytes(path("data/text/a.json.gz"), "text");
  REQUIRE(missing()->commands == Commands{"train", "mkdir -p " + path("tokens"), "build", "check"});
  write_bytes(path("data/vocabulary.model"), "model");
  REQUIRE(missing()->commands == Commands{"mkdir -p " + path("tokens"), "build", "check"});
  write_bytes(path("tokens/other.h5"), "tokens");
  REQUIRE(missing()->commands == Commands{"build", "check"});
  write_bytes(tokens.path, "tokens");
  REQUIRE_FALSE(missing());
}

TEST_CASE("sources are not needed once all files that the run reads exist", "[missing_files]") {
  const TemporaryDirectory directory;
  const RecipeFile text{(directory / "*.gz").string(), "text", {"fetch"}};
  const RecipeFile tokens{(directory / "all.h5").string(), "tokens_path", {"build"}};
  write_bytes(tokens.path, "tokens");
  REQUIRE_FALSE(missing_files({text}, {tokens}, ""));
  REQUIRE(missing_files({}, {tokens, text}, "")->what ==
          "no file matches " + text.path + " (text)");
}

}  // namespace
}  // namespace tessera
