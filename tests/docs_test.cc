// SPDX-License-Identifier: Apache-2.0
// Tests every fenced block of README.md and docs/*.md: commands run, code compiles, data parses,
// and quoted code matches its file. docs/testing.md, "The documents", has the rules for authors.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compiler.h"
#include "tests/support/documents.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

const filesystem::path kRoot = TESSERA_SOURCE_DIR;
const filesystem::path kPrograms = filesystem::path(TESSERA_BINARY_DIR) / "bin";

enum class Tier { kFast, kFull };

// Blocks in these languages and this tier that are neither skipped nor quoted.
std::vector<DocumentBlock> tested_blocks(const std::vector<std::string>& languages, Tier tier) {
  std::vector<DocumentBlock> chosen;
  for (DocumentBlock& block : document_blocks(kRoot)) {
    const bool is_one =
        std::find(languages.begin(), languages.end(), block.language) != languages.end();
    const bool is_left_out = block.has("skip") || block.has("printed by") ||
                             quoted_file(block, kRoot) ||
                             block.has("full") != (tier == Tier::kFull);
    if (is_one && !is_left_out) chosen.push_back(std::move(block));
  }
  return chosen;
}

// Links the tree into a scratch folder, so that commands write only there.
void furnish(const filesystem::path& folder) {
  for (const auto& entry : filesystem::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (name == "runs" || name == "runexp" || name == "flat_tokens" || name == "gpu_check" ||
        name == "build")
      continue;
    filesystem::create_symlink(entry.path(), folder / name);
  }
  // Links the programs, not the launchers, which would start a build.
  filesystem::create_symlink(kPrograms / "runexp", folder / "runexp");
  filesystem::create_symlink(kPrograms / "flat_tokens", folder / "flat_tokens");
}

// `out` has stdout and stderr.
Outcome run_script(const TemporaryDirectory& folder, const std::string& script) {
  constexpr std::chrono::minutes kLimit(30);  // Some commands train for long under a sanitizer.
  return bash(folder.path(), "exec 2>&1\nset -eo pipefail\n" + script, kLimit);
}

// Adds --dry_run to commands that train for long. Commands that set a small number of steps run
// fully, because later commands read their checkpoint.
std::string without_steps(const std::string& script) {
  static const std::regex kTrainsLong(
      R"(^(\w+=\S+ )*\./runexp\b(?! new )(?!.*--(list|describe|diff|help|version|mode|report|compare|watch|dry_run|smoke|set num_train_steps=20 )))");
  std::istringstream lines(std::regex_replace(script, std::regex("\\\\\n *"), ""));
  std::string shortened;
  for (std::string line; std::getline(lines, line);)
    shortened += line + (std::regex_search(line, kTrainsLong) ? " --dry_run\n" : "\n");
  return shortened;
}

// Runs all blocks in one folder in document order, because later blocks use the output of earlier
// ones.
void require_commands_run(Tier tier, size_t least) {
  const TemporaryDirectory folder;
  furnish(folder.path());
  const std::vector<DocumentBlock> blocks = tested_blocks({"sh", "bash"}, tier);
  REQUIRE(blocks.size() >= least);
  for (const DocumentBlock& block : blocks) {
    const Outcome ran = run_script(folder, without_steps(block.text));
    INFO(block.place() << ":\n" << block.text << "\n" << ran.out);
    REQUIRE(ran.exit_code == 0);
  }
}

TEST_CASE("every block of the documents is tested or has a reason for skipping it") {
  for (const DocumentBlock& block : document_blocks(kRoot)) {
    const std::string problem = block_problem(block, kRoot);
    INFO(block.place() << ": " << problem);
    REQUIRE(problem.empty());
  }
}

TEST_CASE("a table of contents lists all sections of its page, and long pages have one") {
  constexpr size_t kMostWithout = 12;
  const std::regex entry(R"(- \[(.*?)\]\(#.*)");
  for (const auto& page : filesystem::directory_iterator(kRoot / "docs")) {
    if (page.path().extension() != ".md") continue;
    std::vector<std::string> listed, sections;
    bool in_block = false;
    std::istringstream lines(read_file(page.path()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("```")) in_block = !in_block;
      std::smatch match;
      if (!in_block && line.starts_with("## ")) sections.push_back(line.substr(3));
      if (sections.empty() && std::regex_match(line, match, entry)) listed.push_back(match[1]);
    }
    INFO(page.path().string());
    if (!listed.empty() || sections.size() > kMostWithout) REQUIRE(listed == sections);
  }
}

TEST_CASE("commands in the documents run") { require_commands_run(Tier::kFast, 10); }

TEST_CASE("long commands in the documents run", "[full]") { require_commands_run(Tier::kFull, 1); }

TEST_CASE("commands print what the documents say") {
  const TemporaryDirectory folder;
  furnish(folder.path());
  size_t blocks = 0;
  for (const DocumentBlock& block : document_blocks(kRoot)) {
    if (!block.has("printed by")) continue;
    ++blocks;
    std::string output;
    for (const std::string& command : block.values("printed by"))
      output += run_script(folder, command).out + "\n";
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);) {
      INFO(block.place() << ": '" << line << "' is not in\n" << output);
      REQUIRE(output.find(line) != std::string::npos);
    }
  }
  REQUIRE(blocks >= 1);
}

TEST_CASE("code quoted from a file is in the file") {
  size_t quotes = 0;
  for (const DocumentBlock& block : document_blocks(kRoot)) {
    const auto file = quoted_file(block, kRoot);
    if (!file) continue;
    ++quotes;
    INFO(block.place() << " quotes " << file->string());
    REQUIRE(is_quote(block, read_file(*file)));
  }
  REQUIRE(quotes >= 2);
}

// All headers that code in the documents may need.
std::string includes() {
  std::vector<std::string> headers = {"plugins/registry.h"};
  for (const char* folder : {"core/graph", "core/ops", "core/hparams", "core/schedules", "layers",
                             "inputs", "tasks", "experiments"})
    for (const auto& entry : filesystem::recursive_directory_iterator(kRoot / folder)) {
      const std::string path = entry.path().lexically_relative(kRoot).string();
      const bool is_plain = !path.ends_with("-inl.h") && !path.ends_with("_internal.h");
      if (entry.path().extension() == ".h" && is_plain) headers.push_back(path);
    }
  std::sort(headers.begin(), headers.end());
  std::string text;
  for (const std::string& header : headers) text += fmt::format("#include \"{}\"\n", header);
  return text;
}

// One translation unit for all blocks, each in its own namespace, so headers are read once.
TEST_CASE("C++ code in the documents compiles") {
  std::string source = includes();
  const std::vector<DocumentBlock> blocks = tested_blocks({"cpp"}, Tier::kFast);
  REQUIRE(blocks.size() >= 8);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const DocumentBlock& block = blocks[i];
    const std::string within = block.has("within") ? block.value("within") : "…";
    const size_t at = within.find("…");
    source +=
        fmt::format("namespace tessera::document_block_{} {{\n{}\n#line {} \"{}\"\n{}\n{}\n}}\n", i,
                    within.substr(0, at), block.line, block.document, block.text,
                    within.substr(at + std::string_view("…").size()));
  }
  const TemporaryDirectory folder;
  write_bytes(folder / "blocks.cc", source);
  const Outcome ran = run_script(
      folder, fmt::format("'{}' -std=c++20 -fsyntax-only -I'{}' -I'{}/generated' blocks.cc",
                          compiler(), kRoot.string(), TESSERA_BINARY_DIR));
  INFO(ran.out);
  REQUIRE(ran.exit_code == 0);
}

// A run of 120 steps, whose directory replaces "runs/…" in the documents.
void make_documented_run(const TemporaryDirectory& folder) {
  write_small_text(folder.path());
  const Outcome ran =
      run_script(folder, tiny_command(120) + " && mkdir -p runs && mv run runs/documented");
  INFO(ran.out);
  REQUIRE(ran.exit_code == 0);
}

std::string with_documented_run(std::string text) {
  const std::string placeholder = "runs/…";
  for (size_t at; (at = text.find(placeholder)) != std::string::npos;)
    text.replace(at, placeholder.size(), "runs/documented");
  return text;
}

TEST_CASE("Python code in the documents works on a run and its checkpoint") {
  const std::string python = python_with("h5py");
  if (python.empty()) return skip_test("no Python with h5py (Debian: python3-h5py)");
  const TemporaryDirectory folder;
  make_documented_run(folder);
  const std::vector<DocumentBlock> blocks = tested_blocks({"python"}, Tier::kFast);
  REQUIRE(blocks.size() >= 3);
  for (const DocumentBlock& block : blocks) {
    write_bytes(folder / "block.py", with_documented_run(block.text));
    const Outcome ran = run_script(folder, python + " block.py");
    INFO(block.place() << "\n" << ran.out);
    REQUIRE(ran.exit_code == 0);
  }
}

TEST_CASE("an experiment's configuration accepts the TOML in the documents") {
  const ExperimentEntry entry = find_experiment("quickstart.CharLm", plugin_path({}));
  const std::vector<DocumentBlock> blocks = tested_blocks({"toml"}, Tier::kFast);
  REQUIRE(blocks.size() >= 1);
  for (const DocumentBlock& block : blocks) {
    ExperimentConfig config = configure(entry, {}).config;
    INFO(block.place());
    REQUIRE_NOTHROW(from_tree(parse_toml(block.text, block.place()), config));
  }
}

// "..." at the end of an object means further members.
std::string without_ellipsis(const std::string& text) {
  static const std::regex kMore(R"(,?\s*\.\.\.\s*\})");
  return std::regex_replace(text, kMore, "}");
}

TEST_CASE("JSON in the documents is valid, whole or line by line") {
  const std::vector<DocumentBlock> blocks = tested_blocks({"json"}, Tier::kFast);
  REQUIRE(blocks.size() >= 2);
  for (const DocumentBlock& block : blocks) {
    INFO(block.place());
    const std::string text = without_ellipsis(block.text);
    try {
      parse_json(text, block.place());
      continue;
    } catch (const Error&) {
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      REQUIRE_NOTHROW(parse_json(line, block.place()));
  }
}

std::string problem_of(const std::string& text) {
  for (const DocumentBlock& block : blocks_of("x.md", text))
    if (const std::string problem = block_problem(block, kRoot); !problem.empty()) return problem;
  return "";
}

TEST_CASE("unknown languages and annotations of blocks are errors") {
  using Catch::Contains;
  REQUIRE_THAT(problem_of("```\nx\n```\n"), Contains("is not tested; say with an annotation"));
  REQUIRE_THAT(problem_of("```text\nx\n```\n"), Contains("a block of 'text' is not tested"));
  REQUIRE_THAT(problem_of("```rust\nx\n```\n"), Contains("a block of 'rust' is not tested"));
  REQUIRE_THAT(problem_of("```cmake\nx()\n```\n"), Contains("a block of 'cmake' is not tested"));
  REQUIRE(problem_of("```cmake\n# tests/out_of_tree/CMakeLists.txt\n```\n").empty());
  REQUIRE(problem_of("<!-- test: skip: notation -->\n```\nx\n```\n").empty());
  REQUIRE_THAT(problem_of("<!-- test: skip -->\n```\nx\n```\n"), Contains("'skip' needs a value"));
  REQUIRE_THAT(problem_of("<!-- test: slow: x -->\n```sh\nx\n```\n"), Contains("no annotation"));
  REQUIRE_THAT(problem_of("<!-- test: within: f() {} -->\n```cpp\nx\n```\n"),
               Contains("needs a …"));
  REQUIRE_THROWS_WITH(blocks_of("x.md", "<!-- test: full -->\n\n```sh\nx\n```\n"),
                      Contains("x.md:2: an annotation stands directly before its block"));
  REQUIRE_THROWS_WITH(blocks_of("x.md", "```sh\nx\n"), Contains("x.md:2: the block does not end"));
  REQUIRE_THROWS_WITH(blocks_of("x.md", "<!-- test skip -->\n"),
                      Contains("expected <!-- test: KEY"));
}

TEST_CASE("a quote may omit text but not change it") {
  const auto quote = [](const std::string& text) {
    return blocks_of("x.md", "  ```cpp\n  // a/b.h\n  " + text + "\n  ```\n").at(0);
  };
  REQUIRE(is_quote(quote("int f();"), "int  f();\nint g();"));
  REQUIRE(is_quote(quote("int f(); … int h(…);"), "int f();\nint g();\nint h(int x);"));
  REQUIRE_FALSE(is_quote(quote("int h(); … int f();"), "int f();\nint h();"));
  REQUIRE_FALSE(is_quote(quote("int f(int);"), "int f();"));
}

}  // namespace
}  // namespace tessera
