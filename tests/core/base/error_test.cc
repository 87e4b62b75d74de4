// SPDX-License-Identifier: Apache-2.0
// Errors: where they say they are, and the nearest name.
#include "core/base/error.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <thread>

#include "core/base/source_site.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("An error says the frames it is raised in, innermost first") {
  const ErrorContext outer("config.toml");
  const ErrorContext inner("task.model");
  REQUIRE(error_of([] { fail("dim is {}, expected {}", 3, 4); }) ==
          "dim is 3, expected 4 [in task.model] [in config.toml]");
}

TEST_CASE("Dotted frames continue the frame outside them") {
  const ErrorContext file("config.toml");
  const ErrorContext model("lm");
  const ErrorContext layer(".x_layers[3]");
  const ErrorContext ffn(".ffn");
  REQUIRE(error_of([] { fail("no"); }) == "no [in lm.x_layers[3].ffn] [in config.toml]");
}

TEST_CASE("Frames and prefixes end with their scope, and belong to their thread") {
  const ErrorContext frame("here");
  {
    const ErrorContext gone("gone");
    const ErrorPrefix prefix("file:1");
    REQUIRE(error_of([] { fail("no"); }) == "file:1: no [in gone] [in here]");
  }
  REQUIRE(error_of([] { fail("no"); }) == "no [in here]");
  std::string elsewhere;
  std::thread([&] { elsewhere = error_of([] { fail("no"); }); }).join();
  REQUIRE(elsewhere == "no");
}

TEST_CASE("Of nested prefixes the innermost counts") {
  const ErrorPrefix outer("a.cc:1");
  const ErrorPrefix inner("b.cc:2");
  REQUIRE(error_of([] { fail("no"); }) == "b.cc:2: no");
}

TEST_CASE("The nearest name is suggested where the slip is small") {
  const std::vector<std::string> names = {"num_layers", "num_heads", "embed", "mdl"};
  REQUIRE(nearest("num_layer", names) == "num_layers");
  REQUIRE(nearest("num_haeds", names) == "num_heads");
  REQUIRE(nearest("embd", names) == "embed");
  REQUIRE(nearest("vocabulary", names) == "");
  REQUIRE(nearest("", names) == "");
  REQUIRE(nearest("q", {"k", "v"}) == "");
  REQUIRE(did_you_mean("model", names) == "; did you mean 'mdl'?");
  REQUIRE(did_you_mean("xyz", names) == "");
}

TEST_CASE("A source site prints as file and line") {
  const SourceSite site = SourceSite::current();
  REQUIRE(site.text() == "tests/core/base/error_test.cc:" + std::to_string(__LINE__ - 1));
  REQUIRE(SourceSite{}.text().empty());
}

TEST_CASE("exceptions of the standard library name the path and what to do") {
  namespace fs = std::filesystem;
  const auto code = std::make_error_code(std::errc::permission_denied);
  REQUIRE(error_text(fs::filesystem_error("cannot open directory", "/data/text", code)) ==
          "/data/text: Permission denied; check the permissions of the path and of the folders "
          "above it");
  REQUIRE(error_text(fs::filesystem_error("cannot rename", "a", "b",
                                          std::make_error_code(std::errc::no_space_on_device))) ==
          "a to b: No space left on device; free space, or give a path on another disk");
  REQUIRE(error_text(std::bad_alloc()) == "out of memory");
  REQUIRE(error_text(std::runtime_error("as it is")) == "as it is");
}

}  // namespace
}  // namespace tessera
