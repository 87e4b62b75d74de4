// SPDX-License-Identifier: Apache-2.0
// Context frames and prefixes of errors, nearest names, source sites.
#include "core/base/error.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("An error lists its context frames, innermost first") {
  const ErrorContext outer("config.toml");
  const ErrorContext inner("task.model");
  REQUIRE(error_of([] { fail("dim is {}, expected {}", 3, 4); }) ==
          "dim is 3, expected 4 [in task.model] [in config.toml]");
}

TEST_CASE("Dotted frames continue the enclosing frame") {
  const ErrorContext file("config.toml");
  const ErrorContext model("lm");
  const ErrorContext layer(".x_layers[3]");
  const ErrorContext ffn(".ffn");
  REQUIRE(error_of([] { fail("no"); }) == "no [in lm.x_layers[3].ffn] [in config.toml]");
}

TEST_CASE("An error with the message of another repeats no frame") {
  const ErrorContext outer("config.toml");
  const auto rethrow = [] {
    const ErrorContext inner("task.model");
    fail("cannot save: {}", error_of([] { fail("no"); }));
  };
  REQUIRE(error_of(rethrow) == "cannot save: no [in task.model] [in config.toml]");
}

TEST_CASE("Frames and prefixes end with their scope and belong to one thread") {
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

TEST_CASE("The innermost of nested prefixes applies") {
  const ErrorPrefix outer("a.cc:1");
  const ErrorPrefix inner("b.cc:2");
  REQUIRE(error_of([] { fail("no"); }) == "b.cc:2: no");
}

TEST_CASE("The nearest name is suggested for a small misspelling") {
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

struct Cites {
  Cites(int, std::source_location where =
                 std::source_location::current())  // NOLINT: implicit on purpose.
      : site(SourceSite::current(where)) {}
  SourceSite site;
};

TEST_CASE("A source site in a header of the C++ library is unknown") {
  const Cites here = 1;
  REQUIRE(here.site.text() == fmt::format("tests/core/base/error_test.cc:{}", __LINE__ - 1));
  const std::map<std::string, Cites> in_a_pair = {{"a", 1}};
  REQUIRE_FALSE(in_a_pair.at("a").site.known());
  const std::optional<Cites> in_an_optional = 1;
  REQUIRE_FALSE(in_an_optional->site.known());
}

TEST_CASE("Messages of standard library exceptions name the path and a remedy") {
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

TEST_CASE("Errors of folders that the environment gives name them") {
  namespace fs = std::filesystem;
  const auto message_of = [](const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      return error_text(error);
    }
    return std::string("no error");
  };
  const fs::path before = fs::current_path();
  const char* const set = std::getenv("TMPDIR");
  const std::string old = set == nullptr ? "" : set;
  const fs::path gone = fs::temp_directory_path() / fmt::format("tessera_gone_{}", ::getpid());
  ::setenv("TMPDIR", "/none", 1);
  const std::string temporary = message_of([] { return fs::temp_directory_path(); });
  set == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", old.c_str(), 1);
  fs::create_directory(gone);
  fs::current_path(gone);
  fs::remove(gone);
  const std::string current = message_of([] { return fs::current_path(); });
  const std::string relative = message_of([] { fs::create_directories("runs/a"); });
  fs::current_path(before);
  REQUIRE(temporary == "TMPDIR=/none, where temporary files would be: No such file or directory");
  const std::string removed =
      ": No such file or directory; the current directory has been removed: change to another one";
  REQUIRE(current == "the current directory" + removed);
  REQUIRE(relative == "runs/a" + removed);
}

TEST_CASE("the text of an exception that is not of Tessera has where it was thrown") {
  const auto text = [](const auto& thrown) {
    try {
      const ErrorContext model("lm");
      const ErrorContext layer(".ffn");
      throw thrown;
    } catch (const std::exception& error) {
      return error_text(error);
    }
  };
  REQUIRE(text(std::runtime_error("boom")) == "boom [in lm.ffn]");
  REQUIRE(text(Error("wrong")) == "wrong");  // Its message has the frames of its constructor.
  REQUIRE(error_text(std::runtime_error("elsewhere")) == "elsewhere");
}

}  // namespace
}  // namespace tessera
