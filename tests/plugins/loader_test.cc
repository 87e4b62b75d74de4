// SPDX-License-Identifier: Apache-2.0
// Plugins are found, checked before any of their code runs, and opened. Invalid plugins give errors
// of one line.
#include "plugins/loader.h"

#include <fstream>
#include <regex>

#include "core/base/error.h"
#include "core/io/file.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

std::string load_error(const filesystem::path& file) {
  return error_of([&] { load_plugin(file); });
}

TEST_CASE("loading a plugin registers its experiments") {
  load_plugin(fixture("good/zoo.so"));
  load_plugin(fixture("good/zoo.so"));  // Loading it again has no effect.
  std::vector<std::string> names;
  for (const ExperimentEntry& entry : registered_experiments())
    if (entry.name.starts_with("zoo.")) names.push_back(entry.name);
  REQUIRE(names == std::vector<std::string>{"zoo.Cat", "zoo.FastCat", "zoo.Grid", "zoo.Herd"});
  REQUIRE(experiment_clashes().empty());
}

TEST_CASE("a missing plugin is an error that names the file") {
  REQUIRE(load_error("/nowhere/c4.so") == "/nowhere/c4.so: no such plugin");
}

TEST_CASE("a plugin of another build is rejected before its code runs, and both builds are named") {
  const filesystem::path stale = fixture("stale/stale.so");
  REQUIRE(load_error(stale) ==
          fmt::format("{}: plugin of another build: got Tessera 0.0.1, interface 000000000000, "
                      "compiler 1.2.3, expected {}; build the plugin again",
                      filesystem::canonical(stale).string(), build_stamp()));
}

TEST_CASE("a stamp names the standard library, and its debug mode") {
  const std::string stamp(build_stamp());
  REQUIRE_THAT(stamp, Catch::Contains("compiler ") && Catch::Contains(", libstdc++ "));
#ifdef _GLIBCXX_DEBUG
  REQUIRE_THAT(stamp, Catch::Contains(", _GLIBCXX_DEBUG"));
#else
  REQUIRE_THAT(stamp, !Catch::Contains("_GLIBCXX_DEBUG"));
#endif
}

TEST_CASE("a shared library that is not a plugin is rejected") {
  const TemporaryDirectory scratch;
  const filesystem::path foreign = scratch.path() / "foreign.so";
  // The test program's C library serves as an example.
  filesystem::path libc;
  for (const char* place :
       {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"})
    if (filesystem::exists(place)) libc = place;
  REQUIRE_FALSE(libc.empty());
  filesystem::copy_file(libc, foreign);
  REQUIRE(load_error(foreign) ==
          foreign.string() +
              ": not a Tessera plugin (it has no build stamp; make it with tessera_plugin())");
}

TEST_CASE("a file that is not a shared library is rejected, also if it is empty") {
  const TemporaryDirectory scratch;
  const filesystem::path text = scratch.path() / "text.so";
  std::ofstream(text) << "not a library";
  REQUIRE(load_error(text) == text.string() + ": not a shared library");
  const filesystem::path empty = scratch.path() / "empty.so";
  std::ofstream(empty).close();
  REQUIRE(load_error(empty) == empty.string() + ": not a shared library");
}

TEST_CASE("a truncated plugin is an error, never a crash") {
  const TemporaryDirectory scratch;
  const std::string whole = read_file(fixture("good/farm.so"));
  const filesystem::path cut = scratch.path() / "cut.so";
  for (const size_t parts : {1, 2, 10, 50, 90, 99}) {
    std::ofstream(cut, std::ios::binary | std::ios::trunc)
        << whole.substr(0, whole.size() * parts / 100);
    INFO(parts << " %");
    REQUIRE_THAT(load_error(cut), Catch::Contains("cut.so: ") && !Catch::Contains("\n"));
  }
}

TEST_CASE("a plugin with an undefined symbol is an error that names the symbol") {
  const std::string error = load_error(fixture("hollow/hollow.so"));
  REQUIRE_THAT(error, Catch::Contains("hollow.so: the plugin cannot be loaded: ") &&
                          Catch::Contains("nobody_defines_this") && !Catch::Contains("\n"));
}

TEST_CASE(
    "the plugin path is the given one, then the environment variable, then the default folder") {
  const TemporaryDirectory scratch;
  setenv("TESSERA_PLUGIN_PATH", (scratch.path().string() + "::/tmp").c_str(), 1);
  const auto path = plugin_path({fixture("good")});
  unsetenv("TESSERA_PLUGIN_PATH");
  REQUIRE(path.size() == 4);
  REQUIRE(path[0] == fixture("good"));
  REQUIRE(path[1] == scratch.path());
  REQUIRE(path[2] == "/tmp");
  REQUIRE(path[3] == filesystem::path(TESSERA_BINARY_DIR) / "lib/tessera/experiments");
  REQUIRE(error_of([] { plugin_path({"/nowhere"}); }) ==
          "--plugin_path=/nowhere: no such folder or library");
}

TEST_CASE("an experiment is found by its name or by any unique dotted suffix") {
  const std::vector<filesystem::path> path = {fixture("good")};
  REQUIRE(find_experiment("zoo.Cat", path).name == "zoo.Cat");
  REQUIRE(find_experiment("FastCat", path).name == "zoo.FastCat");
  REQUIRE(find_experiment("Forgetful", path).plugin ==
          filesystem::canonical(fixture("good/farm.so")));
  REQUIRE(error_of([&] { find_experiment("Cat", path); }) ==
          "--exp=Cat is ambiguous: farm.Cat or zoo.Cat; give more of the name");
  REQUIRE(error_of([&] { find_experiment("Forgetfull", path); }) ==
          "no experiment 'Forgetfull'; did you mean 'farm.Forgetful'?");
  REQUIRE(error_of([&] { find_experiment("zoo.FastCta", path); }) ==
          "no experiment 'zoo.FastCta'; did you mean 'zoo.FastCat'?");
  REQUIRE(error_of([&] { find_experiment("zoo", path); }) ==
          "'zoo' is a family; its experiments are zoo.Cat, zoo.FastCat, zoo.Grid, zoo.Herd");
  // Independent of which plugins other tests have loaded.
  REQUIRE(error_of([&] { find_experiment("zebra.Stripes", path); }) ==
          fmt::format("no experiment 'zebra.Stripes'; --list shows all {}",
                      registered_experiments().size()));
}

TEST_CASE("an experiment is found by its name in Pax, with or without the module") {
  const std::vector<filesystem::path> path = plugin_path({});
  for (const std::string name :
       {"tasks.lm.params.c4.C4Spmd1BAdam4Replicas",
        "paxml.tasks.lm.params.c4.C4Spmd1BAdam4Replicas", "C4Spmd1BAdam4Replicas"})
    REQUIRE(find_experiment(name, path).name == "c4.Spmd1B");
  REQUIRE(find_experiment("configs.NVIDIA5B", path).name == "nvidia.Nvidia5B");
  REQUIRE(find_experiment("configs.GPT175B", path).name == "nvidia.Pile175B");
  REQUIRE_THAT(error_of([&] { find_experiment("C4Spmd1BAdam4Replica", path); }),
               Catch::Contains(" or 'c4.Spmd1B'"));
  int64_t found = 0;
  const std::regex pattern("^Pax's ([A-Za-z0-9_]+)");
  for (const ExperimentEntry& entry : registered_experiments()) {
    std::smatch match;
    if (!std::regex_search(entry.summary, match, pattern)) continue;
    INFO(entry.name << ": " << match[1]);
    REQUIRE(find_experiment(match[1].str(), path).name == entry.name);
    REQUIRE(find_experiment("tasks.lm.params.any." + match[1].str(), path).name == entry.name);
    ++found;
  }
  REQUIRE(found >= 90);
}

}  // namespace
}  // namespace tessera
