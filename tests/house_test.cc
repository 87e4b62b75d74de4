// SPDX-License-Identifier: Apache-2.0
// Rules for source files: macros, length, the first lines and formatting. Also checks which files
// git tracks at the root, and that planted faults still apply.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/skip.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

constexpr int64_t kLongestFile = 500;
constexpr int64_t kLongestKernel = 600;  // Kernels start with an explanation of the algorithm.

// Macros except the allowed ones, those that Catch2 and Highway require, and those that the same
// file undefines.
std::vector<std::string> stray_macros(const std::string& file, const std::string& text) {
  static const std::regex kDefine(R"((?:^|\n)#define (\w+))");
  static const std::set<std::string> kKnown = {"FIELDS", "CHECK", "REGISTER_TEMPLATE",
                                               "REGISTER_EXPERIMENT"};
  std::vector<std::string> stray;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kDefine);
       at != std::sregex_iterator(); ++at) {
    const std::string name = (*at)[1];
    const bool is_foreign =
        name.starts_with("HWY_") || name.starts_with("CATCH_CONFIG_") || name.ends_with("_INL_H_");
    const bool is_local = text.find("\n#undef " + name + "\n") != std::string::npos;
    if (!kKnown.contains(name) && !is_foreign && !is_local)
      stray.push_back(fmt::format("{} defines {}", file, name));
  }
  return stray;
}

using Check = std::vector<std::string> (*)(const std::string& file, const std::string& text);

std::vector<std::string> over_all(const std::vector<std::string>& files, Check check) {
  std::vector<std::string> found;
  for (const std::string& file : files)
    for (std::string& line : check(file, read_file(source_root() / file)))
      found.push_back(std::move(line));
  return found;
}

const std::vector<std::string> kNothing;

TEST_CASE("the only macros that users see are FIELDS, CHECK and two that register") {
  REQUIRE(over_all(source_files(code_folders(), {".h", ".cc"}), stray_macros) == kNothing);
}

// Returns the missing `extern template` lines of a header: one for each class that it declares and
// its .cc registers. Without the line, files that include the header compile HolderOf again
// (core/hparams/template.h).
std::vector<std::string> without_extern(const std::string& header, const std::string& source) {
  static const std::regex kRegister(R"((?:^|\n)REGISTER_TEMPLATE\((\w+), (\w+)\))");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(source.begin(), source.end(), kRegister);
       at != std::sregex_iterator(); ++at) {
    const std::string base = (*at)[1], name = (*at)[2];
    const std::regex declared(fmt::format("\\b(class|struct|using) {}\\b", name));
    const std::string line =
        fmt::format("extern template class HolderOf<{}, {}::HParams>;", base, name);
    if (std::regex_search(header, declared) && header.find(line) == std::string::npos)
      found.push_back(line);
  }
  return found;
}

TEST_CASE("a header declares the HolderOf of each class that its source registers") {
  const Check check = [](const std::string& file, const std::string& text) {
    const filesystem::path header = source_root() / (file.substr(0, file.size() - 2) + "h");
    std::vector<std::string> found;
    if (filesystem::exists(header))
      for (const std::string& line : without_extern(read_file(header), text))
        found.push_back(fmt::format("{} lacks: {}", header.string(), line));
    return found;
  };
  REQUIRE(over_all(source_files(code_folders(), {".cc"}), check) == kNothing);
  const std::string source = "REGISTER_TEMPLATE(UnaryLayer, Halve);\n";
  REQUIRE(without_extern("class Halve {};", source).size() == 1);
  REQUIRE(without_extern("class Halved {};", source).empty());
  REQUIRE(without_extern("class Halve {};\n"
                         "extern template class HolderOf<UnaryLayer, Halve::HParams>;\n",
                         source)
              .empty());
}

TEST_CASE("no file exceeds the maximum length") {
  const Check is_long = [](const std::string& file, const std::string& text) {
    const int64_t lines = std::count(text.begin(), text.end(), '\n');
    std::vector<std::string> found;
    const bool is_kernel = file.starts_with("core/devices/cpu/");
    if (lines > (is_kernel ? kLongestKernel : kLongestFile))
      found.push_back(fmt::format("{} has {} lines", file, lines));
    return found;
  };
  REQUIRE(over_all(source_files(code_and_test_folders(), {".h", ".cc", ".cu", ".cuh"}), is_long) ==
          kNothing);
}

// Lines of source by folder, which issues say by how much they may raise. Words of the documents.
const std::map<std::string, int64_t> kMostLines = {
    {"core", 51840},   {"layers", 6250},      {"tasks", 39340},       {"inputs", 16640},
    {"plugins", 5350}, {"experiments", 4140}, {"plugins/cuda", 17930}};
constexpr int64_t kMostWords = 65040;

std::string size_folder(const std::string& file) {
  return file.starts_with("plugins/cuda/") ? "plugins/cuda" : file.substr(0, file.find('/'));
}

TEST_CASE("source and documents stay within their size") {
  std::map<std::string, int64_t> lines;
  for (const std::string& file :
       source_files(code_folders(), {".h", ".cc", ".cu", ".cuh", ".js", ".css"})) {
    const std::string text = read_file(source_root() / file);
    lines[size_folder(file)] += std::count(text.begin(), text.end(), '\n');
  }
  for (const auto& [folder, most] : kMostLines) {
    CAPTURE(folder);
    REQUIRE(lines.contains(folder));
    REQUIRE(lines.at(folder) <= most);
  }
  REQUIRE(lines.size() == kMostLines.size());
  std::vector<std::string> documents = source_files({"docs"}, {".md"});
  documents.push_back("README.md");
  int64_t words = 0;
  for (const std::string& file : documents) {
    std::istringstream text(read_file(source_root() / file));
    words += std::distance(std::istream_iterator<std::string>(text), {});
  }
  REQUIRE(words <= kMostWords);
}

// Sources of experiments whose second line is not the command that runs one of them.
std::vector<std::string> without_command(const std::string& file, const std::string& text) {
  static const std::regex kCommand(R"(// \./runexp --exp=(\w+)\.(\w+)( --\S+)*)");
  if (text.find("REGISTER_EXPERIMENT(") == std::string::npos) return {};
  const size_t second = text.find('\n') + 1;
  const std::string line = text.substr(second, text.find('\n', second) - second);
  std::smatch match;
  const bool is_command = std::regex_match(line, match, kCommand);
  const bool is_here =
      is_command &&
      std::regex_search(text, std::regex(fmt::format(R"(REGISTER_EXPERIMENT\(\s*{},\s*{}\b)",
                                                     match[1].str(), match[2].str())));
  return is_here ? kNothing
                 : std::vector{fmt::format("{} does not begin with `// ./runexp --exp=NAME` of an "
                                           "experiment that it registers",
                                           file)};
}

TEST_CASE("every file of experiments begins with a command that runs one") {
  REQUIRE(over_all(source_files({"experiments"}, {".cc"}), without_command) == kNothing);
  REQUIRE(without_command("x.cc", "//\n// ./runexp --exp=a.B\nREGISTER_EXPERIMENT(a, C)").size() ==
          1);
}

TEST_CASE("every file starts with its licence, headers and sources without one with a purpose") {
  const Check is_bare = [](const std::string& file, const std::string& text) {
    std::vector<std::string> found;
    const size_t first = text.starts_with("#!") ? text.find('\n') + 1 : 0;
    const std::string_view opening = std::string_view(text).substr(first);
    const bool licensed = opening.starts_with("// SPDX-License-Identifier: Apache-2.0\n") ||
                          opening.starts_with("# SPDX-License-Identifier: Apache-2.0\n");
    const std::string_view after = opening.substr(opening.find('\n') + 1);
    if (!licensed) found.push_back(file + " has no SPDX line");
    const bool is_header = file.ends_with(".h") || file.ends_with(".cuh");
    const bool has_header =
        filesystem::exists(source_root() / filesystem::path(file).replace_extension(".h"));
    const bool is_source = file.ends_with(".cc") && !file.starts_with("tests/") && !has_header;
    if ((is_header || is_source) && !after.starts_with("// "))
      found.push_back(file + " does not state its purpose");
    // Highway compiles -inl.h files once for each target, with its own guards.
    const bool once = !file.ends_with("-inl.h");
    if (is_header && once && text.find("\n#pragma once\n") == std::string::npos)
      found.push_back(file + " has no #pragma once");
    if (is_header && text.find("\nusing namespace") != std::string::npos)
      found.push_back(file + " has a using directive");
    return found;
  };
  REQUIRE(over_all(source_files(code_and_test_folders(),
                                {".h", ".cc", ".cu", ".cuh", ".cmake", ".sh", ".py"}),
                   is_bare) == kNothing);
  for (const char* script : {"runexp", "flat_tokens", "gpu_check", "runtests", ".ci/run"})
    REQUIRE(is_bare(script, read_file(source_root() / script)) == kNothing);
}

// The names that git tracks at the root of the tree. Detects files that programs wrote to their
// current directory.
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
                                          "hardware",
                                          "flat_tokens",
                                          "gpu_check",
                                          "inputs",
                                          "layers",
                                          "plugins",
                                          "runexp",
                                          "runtests",
                                          "tasks",
                                          "tests"};

// Unknown names at the root, from a list of one path per line.
std::vector<std::string> strays(const std::string& paths) {
  std::set<std::string> found;
  std::istringstream lines(paths);
  for (std::string path; std::getline(lines, path);) {
    const std::string name = path.substr(0, path.find('/'));
    if (!kAtTheRoot.contains(name)) found.insert(name);
  }
  return {found.begin(), found.end()};
}

TEST_CASE("git tracks only known names at the root") {
  REQUIRE(strays("README.md\ncore/base/x.h\nfuzz_x.input\nnotes/a\nnotes/b\n") ==
          std::vector<std::string>{"fuzz_x.input", "notes"});
  const TemporaryDirectory scratch;
  const std::string list = (scratch / "files").string();
  if (!filesystem::exists(source_root() / ".git") ||
      std::system(fmt::format("git -c safe.directory='*' -C '{}' ls-files >'{}'",
                              source_root().string(), list)
                      .c_str()) != 0) {
    WARN("skipped: not a git checkout, or git is not installed");
    return;
  }
  const std::string files = read_file(list);
  REQUIRE(files.find("README.md\n") != std::string::npos);
  REQUIRE(strays(files) == kNothing);
}

// Folders of code that a text does not name in backquotes, by their path or, below `tasks`, by
// their name.
std::vector<std::string> unnamed_folders(const std::string& text) {
  std::set<std::string> folders;
  for (const std::string& file : source_files(code_folders(), {".h", ".cc"})) {
    const size_t first = file.find('/'), second = file.find('/', first + 1);
    const std::string top = file.substr(0, first);
    const bool has_parts = top == "core" || top == "tasks";
    folders.insert(has_parts ? file.substr(0, second) : top);
  }
  std::vector<std::string> unnamed;
  for (const std::string& folder : folders) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    const bool is_named =
        text.find("`" + folder + "`") != std::string::npos ||
        (folder.starts_with("tasks/") && text.find("`" + name + "`") != std::string::npos);
    if (!is_named) unnamed.push_back(folder);
  }
  return unnamed;
}

TEST_CASE("the design's table of folders has every folder, and only folders that exist") {
  const std::string design = read_file(source_root() / "docs/design.md");
  const size_t begin = design.find("## 4. Folders"), end = design.find("### Names");
  REQUIRE(begin < end);
  const std::string section = design.substr(begin, end - begin);
  REQUIRE(unnamed_folders(section) == kNothing);
  REQUIRE(unnamed_folders("`core/base`").size() > 20);
  const std::string readme = read_file(source_root() / "README.md");
  for (const std::string& top : code_folders()) {
    INFO(top);
    REQUIRE(readme.find("`" + top + "/`") != std::string::npos);
  }
  static const std::regex kRow("\n\\| `([a-z_/]+)` \\|");
  int64_t rows = 0;
  for (auto at = std::sregex_iterator(section.begin(), section.end(), kRow);
       at != std::sregex_iterator(); ++at, ++rows) {
    INFO((*at)[1]);
    REQUIRE(filesystem::is_directory(source_root() / std::string((*at)[1])));
  }
  REQUIRE(rows > 15);
}

// The text that a planted fault replaces must occur once in its file.
std::vector<std::string> stale_faults(const Tree& faults) {
  std::vector<std::string> found;
  for (const Tree& fault : faults.find("fault")->items) {
    const std::string& file = fault.find("file")->text;
    const std::string& old = fault.find("old")->text;
    const bool exists = filesystem::exists(source_root() / file);
    const std::string text = exists ? read_file(source_root() / file) : "";
    const size_t first = text.find(old);
    if (first == std::string::npos || text.find(old, first + 1) != std::string::npos)
      found.push_back(fmt::format("{}: {}", fault.find("name")->text, file));
  }
  return found;
}

TEST_CASE("every planted fault replaces text that occurs exactly once in its file") {
  const std::string file = "tests/planted_faults.toml";
  const Tree faults = parse_toml(read_file(source_root() / file), file);
  REQUIRE(faults.find("fault")->items.size() > 10);
  REQUIRE(stale_faults(faults) == kNothing);
  const auto stale = [](const std::string& text) {
    return stale_faults(parse_toml("[[fault]]\nname = \"x\"\n" + text, "x.toml")).size();
  };
  REQUIRE(stale("file = \"README.md\"\nold = \"# Tessera\\n\"\n") == 0);
  REQUIRE(stale("file = \"README.md\"\nold = \"Tessera\"\n") == 1);
  REQUIRE(stale("file = \"README.md\"\nold = \"no such text\"\n") == 1);
  REQUIRE(stale("file = \"no_such_file\"\nold = \"a\"\n") == 1);
}

// The name of the program that runs a test file (cmake/TesseraFolder.cmake).
std::string program_of(const std::string& file) {
  static const std::regex kFolders("tests/([^/]+)(/[^/]+)?(/.*)?/[^/]*");
  std::smatch folders;
  if (!std::regex_match(file, folders, kFolders)) return "test_whole";
  std::string name = "test_" + folders.str(1) + folders.str(2);
  std::ranges::replace(name, '/', '_');
  return name;
}

// Faults whose program does not exist, or has no test that the filter selects: nothing would fail.
std::vector<std::string> untested_faults(const Tree& faults) {
  std::map<std::string, std::vector<std::string>> tests;  // Beginnings of names by program.
  static const std::regex kTest("TEST_CASE\\(\\s*\"([^\"]*)");
  for (const std::string& file : source_files({"tests"}, {".cc"})) {
    if (!file.ends_with("_test.cc")) continue;
    const std::string text = read_file(source_root() / file);
    for (auto at = std::sregex_iterator(text.begin(), text.end(), kTest);
         at != std::sregex_iterator(); ++at)
      tests[program_of(file)].push_back((*at)[1]);
  }
  std::vector<std::string> found;
  for (const Tree& fault : faults.find("fault")->items) {
    const auto program = tests.find(fault.find("test")->text);
    const Tree* const filters = fault.find("filter");
    bool runs = program != tests.end();
    for (size_t i = 0; runs && filters != nullptr && i < filters->items.size(); ++i) {
      std::string name = filters->items[i].text;
      if (name.ends_with('*')) name.pop_back();
      runs = name.starts_with('[') || std::ranges::any_of(program->second, [&](const auto& test) {
               return test.starts_with(name) || name.starts_with(test);
             });
    }
    if (!runs) found.push_back(fault.find("name")->text);
  }
  return found;
}

TEST_CASE("every planted fault has a test program, whose filter selects a test") {
  const std::string file = "tests/planted_faults.toml";
  REQUIRE(untested_faults(parse_toml(read_file(source_root() / file), file)) == kNothing);
  const auto untested = [](const std::string& text) {
    return untested_faults(parse_toml("[[fault]]\nname = \"x\"\n" + text, "x.toml")).size();
  };
  REQUIRE(untested("test = \"test_whole\"\nfilter = [\"every planted fault has*\"]\n") == 0);
  REQUIRE(untested("test = \"test_tasks_run\"\n") == 0);
  REQUIRE(untested("test = \"test_tasks_run_train\"\n") == 1);
  REQUIRE(untested("test = \"test_whole\"\nfilter = [\"no such test*\"]\n") == 1);
}

TEST_CASE("a fuzzer saves failing inputs in the temporary directory") {
  const auto fails = [](std::string_view) { throw std::logic_error("planted"); };
  const filesystem::path kept = filesystem::temp_directory_path() / "tessera_fuzz_house_test.input";
  REQUIRE_THROWS_WITH(fuzz("house_test", {"seed"}, fails, 1), Catch::Contains(kept.string()));
  REQUIRE(filesystem::remove(kept));
}

TEST_CASE("every file is formatted by clang-format") {
  // Versions differ in what they make of the same code.
  if (std::system("clang-format --version 2>/dev/null | grep -q 'version 14\\.'") != 0)
    return skip_test("no clang-format of version 14, which formats this tree (Debian 12)");
  const TemporaryDirectory scratch;
  const std::string list = (scratch / "files").string();
  std::ofstream stream(list);
  for (const std::string& file :
       source_files(code_and_test_folders(), {".h", ".cc", ".cu", ".cuh"}))
    stream << (source_root() / file).string() << '\n';
  stream.close();
  const std::string command =
      fmt::format("xargs -n 16 -P 2 clang-format --dry-run -Werror <{}", list);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace tessera
