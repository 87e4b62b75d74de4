// SPDX-License-Identifier: Apache-2.0
// The rules of the house: which folder may include which, what public headers must not show, how
// long files may be, how they open, and that clang-format agrees.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

// Lowest first: a folder may include these and itself. Layers see neither passes nor devices, and
// devices never see passes.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core/base", {}},
    {"core/io", {"core/base"}},
    {"core/hparams", {"core/base", "core/io"}},
    {"core/graph", {"core/base"}},
    {"core/ops", {"core/base", "core/graph"}},
    {"core/passes", {"core/base", "core/graph", "core/ops"}},
    {"core/backend", {"core/base", "core/graph", "core/ops"}},
    {"core/runtime",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "core/passes",
      "core/backend"}},
    {"core/check",
     {"core/base", "core/io", "core/graph", "core/ops", "core/passes", "core/backend",
      "core/runtime"}},
    {"layers", {"core/base", "core/hparams", "core/graph", "core/ops"}},
    {"inputs", {"core/base", "core/io", "core/hparams", "core/graph"}},
    {"tasks",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "core/passes",
      "core/backend", "core/runtime", "core/check", "layers", "inputs"}},
    {"plugins",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "core/passes",
      "core/backend", "core/runtime", "core/check", "layers", "inputs", "tasks"}},
    {"experiments",
     {"core/base", "core/io", "core/hparams", "core/graph", "core/ops", "layers", "inputs", "tasks",
      "plugins"}},
};

// What users of our headers must not need.
const std::vector<std::string> kPrivate = {"boost/", "hdf5", "H5", "toml", "cuda", "mpi"};

constexpr int64_t kLongestFile = 500;
constexpr int64_t kLongestKernel = 600;  // An algorithm explained at its head may take longer.

const filesystem::path& root() {
  static const filesystem::path path = TESSERA_SOURCE_DIR;
  return path;
}

// Relative paths of the files in our folders whose names end so.
std::vector<std::string> sources(const std::vector<std::string>& folders,
                                 const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : filesystem::recursive_directory_iterator(root() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() &&
          std::find(extensions.begin(), extensions.end(), extension) != extensions.end())
        files.push_back(entry.path().lexically_relative(root()).string());
    }
  }
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  return files;
}

const std::vector<std::string> kCode = {"core",  "layers",  "inputs",
                                        "tasks", "plugins", "experiments"};
const std::vector<std::string> kCodeAndTests = {"core",    "layers",      "inputs", "tasks",
                                                "plugins", "experiments", "tests",  "cmake"};

std::string folder_of(const std::string& file) {
  const size_t slash = file.find('/');
  if (file.substr(0, slash) != "core") return file.substr(0, slash);
  return file.substr(0, file.find('/', slash + 1));
}

struct Include {
  std::string file;
  bool is_quoted = false;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex kInclude(R"re((?:^|\n)#include ([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kInclude);
       at != std::sregex_iterator(); ++at)
    includes.push_back({(*at)[2], (*at)[1] == "\""});
  return includes;
}

// "file includes what" for each include that breaks the order.
std::vector<std::string> order_breaks(const std::string& file, const std::string& text) {
  std::vector<std::string> breaks;
  const std::string folder = folder_of(file);
  const std::set<std::string>& allowed = kMayInclude.at(folder);
  for (const Include& include : includes_of(text)) {
    if (!include.is_quoted || include.file.find('/') == std::string::npos) continue;
    const std::string target = folder_of(include.file);
    if (target != folder && !allowed.contains(target))
      breaks.push_back(fmt::format("{} includes {}", file, include.file));
  }
  return breaks;
}

std::vector<std::string> private_includes(const std::string& file, const std::string& text) {
  std::vector<std::string> shown;
  if (file.ends_with("_internal.h")) return shown;  // Not public: it is not installed.
  for (const Include& include : includes_of(text))
    for (const std::string& name : kPrivate)
      if (!include.is_quoted && include.file.starts_with(name))
        shown.push_back(fmt::format("{} includes <{}>", file, include.file));
  return shown;
}

// The macros that are ours, besides those that Catch2, Highway and PCRE2 ask for.
std::vector<std::string> stray_macros(const std::string& file, const std::string& text) {
  static const std::regex kDefine(R"((?:^|\n)#define (\w+))");
  static const std::set<std::string> kKnown = {"FIELDS", "CHECK", "REGISTER_EXPERIMENT"};
  std::vector<std::string> stray;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kDefine);
       at != std::sregex_iterator(); ++at) {
    const std::string name = (*at)[1];
    const bool is_foreign = name.starts_with("HWY_") || name.starts_with("PCRE2_") ||
                            name.starts_with("CATCH_CONFIG_") || name.ends_with("_INL_H_");
    if (!kKnown.contains(name) && !is_foreign)
      stray.push_back(fmt::format("{} defines {}", file, name));
  }
  return stray;
}

using Check = std::vector<std::string> (*)(const std::string& file, const std::string& text);

std::vector<std::string> over_all(const std::vector<std::string>& files, Check check) {
  std::vector<std::string> found;
  for (const std::string& file : files)
    for (std::string& line : check(file, read_file(root() / file)))
      found.push_back(std::move(line));
  return found;
}

const std::vector<std::string> kNothing;

TEST_CASE("every folder includes only what stands above it") {
  REQUIRE(over_all(sources(kCode, {".h", ".cc"}), order_breaks) == kNothing);
  // The rule bites.
  REQUIRE(order_breaks("layers/x.cc", "#include \"core/passes/autodiff/autodiff.h\"\n").size() ==
          1);
  REQUIRE(order_breaks("core/backend/cpu/x.h", "#include \"core/hparams/field.h\"\n").size() == 1);
  REQUIRE(order_breaks("tasks/x.cc", "#include \"core/passes/autodiff/autodiff.h\"\n").empty());
}

TEST_CASE("public headers include no Boost, HDF5, toml++, MPI or CUDA") {
  REQUIRE(over_all(sources(kCode, {".h"}), private_includes) == kNothing);
  REQUIRE(private_includes("x.h", "#include <boost/dll.hpp>\n").size() == 1);
}

TEST_CASE("the only macros of ours are FIELDS, CHECK and REGISTER_EXPERIMENT") {
  REQUIRE(over_all(sources(kCode, {".h", ".cc"}), stray_macros) == kNothing);
}

TEST_CASE("files are short") {
  const Check is_long = [](const std::string& file, const std::string& text) {
    const int64_t lines = std::count(text.begin(), text.end(), '\n');
    std::vector<std::string> found;
    const bool is_kernel = file.starts_with("core/backend/cpu/");
    if (lines > (is_kernel ? kLongestKernel : kLongestFile))
      found.push_back(fmt::format("{} has {} lines", file, lines));
    return found;
  };
  REQUIRE(over_all(sources(kCodeAndTests, {".h", ".cc"}), is_long) == kNothing);
}

TEST_CASE("every file opens with its licence, and a header with what it is for") {
  const Check is_bare = [](const std::string& file, const std::string& text) {
    std::vector<std::string> found;
    const size_t first = text.starts_with("#!") ? text.find('\n') + 1 : 0;
    const std::string_view opening = std::string_view(text).substr(first);
    const bool licensed = opening.starts_with("// SPDX-License-Identifier: Apache-2.0\n") ||
                          opening.starts_with("# SPDX-License-Identifier: Apache-2.0\n");
    const std::string_view after = opening.substr(opening.find('\n') + 1);
    if (!licensed) found.push_back(file + " has no SPDX line");
    if (file.ends_with(".h") && !after.starts_with("// "))
      found.push_back(file + " does not say what it is for");
    // Highway compiles -inl.h files once for each target, with guards of its own.
    const bool once = !file.ends_with("-inl.h");
    if (file.ends_with(".h") && once && text.find("\n#pragma once\n") == std::string::npos)
      found.push_back(file + " has no #pragma once");
    if (file.ends_with(".h") && text.find("\nusing namespace") != std::string::npos)
      found.push_back(file + " has a using directive");
    return found;
  };
  REQUIRE(over_all(sources(kCodeAndTests, {".h", ".cc", ".cmake", ".sh", ".py"}), is_bare) ==
          kNothing);
  for (const char* script : {"runexp", "flat_tokens", "runtests", ".ci/run"})
    REQUIRE(is_bare(script, read_file(root() / script)) == kNothing);
}

// What git tracks at the root of the tree, which is where a program that writes to its current
// directory leaves files.
const std::set<std::string> kAtTheRoot = {".ci",
                                          ".clang-format",
                                          ".clang-tidy",
                                          ".gitignore",
                                          "CHANGELOG.md",
                                          "CMakeLists.txt",
                                          "CMakePresets.json",
                                          "LICENSE",
                                          "README.md",
                                          "cmake",
                                          "core",
                                          "docs",
                                          "experiments",
                                          "flat_tokens",
                                          "inputs",
                                          "layers",
                                          "plugins",
                                          "runexp",
                                          "runtests",
                                          "tasks",
                                          "tests"};

// Names at the root of paths, one path a line, that do not belong there.
std::vector<std::string> strays(const std::string& paths) {
  std::set<std::string> found;
  std::istringstream lines(paths);
  for (std::string path; std::getline(lines, path);) {
    const std::string name = path.substr(0, path.find('/'));
    if (!kAtTheRoot.contains(name)) found.insert(name);
  }
  return {found.begin(), found.end()};
}

TEST_CASE("git tracks nothing at the root that does not belong there") {
  REQUIRE(strays("README.md\ncore/base/x.h\nfuzz_x.input\nnotes/a\nnotes/b\n") ==
          std::vector<std::string>{"fuzz_x.input", "notes"});
  const TemporaryDirectory scratch;
  const std::string list = (scratch / "files").string();
  if (!filesystem::exists(root() / ".git") ||
      std::system(
          fmt::format("git -c safe.directory='*' -C '{}' ls-files >'{}'", root().string(), list)
              .c_str()) != 0) {
    WARN("skipped: not a git checkout, or git is not installed");
    return;
  }
  const std::string files = read_file(list);
  REQUIRE(files.find("README.md\n") != std::string::npos);
  REQUIRE(strays(files) == kNothing);
}

TEST_CASE("an input that a fuzzer keeps is in the temporary directory") {
  const auto fails = [](std::string_view) { throw std::logic_error("planted"); };
  const filesystem::path kept = filesystem::temp_directory_path() / "tessera_fuzz_house_test.input";
  REQUIRE_THROWS_WITH(fuzz("house_test", {"seed"}, fails, 1), Catch::Contains(kept.string()));
  REQUIRE(filesystem::remove(kept));
}

TEST_CASE("clang-format agrees with every file") {
  if (std::system("command -v clang-format >/dev/null 2>&1") != 0) {
    WARN("clang-format is not installed");
    return;
  }
  const TemporaryDirectory scratch;
  const std::string list = (scratch / "files").string();
  std::ofstream stream(list);
  for (const std::string& file : sources(kCodeAndTests, {".h", ".cc"}))
    stream << (root() / file).string() << '\n';
  stream.close();
  const std::string command =
      fmt::format("xargs -n 16 -P 2 clang-format --dry-run -Werror <{}", list);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace tessera
