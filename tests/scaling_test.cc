// SPDX-License-Identifier: Apache-2.0
// Figures of docs that a script prints from plans: a few rows are planned again and must still be
// in the document. The scripts themselves check all rows (--check).
#include <chrono>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

const filesystem::path kTree = TESSERA_SOURCE_DIR;
const filesystem::path kRunexp = filesystem::path(TESSERA_BINARY_DIR) / "bin" / "runexp";

Outcome check(const TemporaryDirectory& folder, const filesystem::path& tree,
              const std::string& script) {
  constexpr std::chrono::minutes kLimit(20);  // Under a sanitizer.
  return shell(folder.path(),
               fmt::format("{} {} --check --quick --runexp={} --plans={}", python_with("tomllib"),
                           (tree / "tests/bench" / script).string(), kRunexp.string(),
                           (folder.path() / "plans").string()),
               kLimit);
}

TEST_CASE("the first row of each table of docs/scaling.md is what the planner says") {
  if (python_with("tomllib").empty()) return skip_test("no Python 3.11");
  const TemporaryDirectory folder;
  const Outcome checked = check(folder, kTree, "scaling.py");
  CAPTURE(checked.errors);
  REQUIRE(checked.exit_code == 0);
}

TEST_CASE("the first predicted row of each device in docs/planner.md is what the planner says") {
  if (python_with("tomllib").empty()) return skip_test("no Python 3.11");
  const TemporaryDirectory folder;
  const Outcome checked = check(folder, kTree, "published_rows.py");
  CAPTURE(checked.errors);
  REQUIRE(checked.exit_code == 0);
}

TEST_CASE("a figure of a document that the planner does not say is named") {
  if (python_with("tomllib").empty()) return skip_test("no Python 3.11");
  const TemporaryDirectory folder;
  for (const char* part : {"tests", "docs"}) filesystem::create_directory(folder.path() / part);
  filesystem::copy(kTree / "tests/bench", folder.path() / "tests/bench");
  filesystem::copy(kTree / "hardware", folder.path() / "hardware");
  std::string text = read_file(kTree / "docs/scaling.md");
  const std::string row = "| `lm_cloud.Spmd2B` | 4 |";
  REQUIRE(text.find(row) != std::string::npos);
  text.replace(text.find(row), row.size(), "| `lm_cloud.Spmd2B` | 5 |");
  write_file_atomically(folder.path() / "docs/scaling.md", text);
  const Outcome checked = check(folder, folder.path(), "scaling.py");
  REQUIRE(checked.exit_code == 1);
  REQUIRE_THAT(checked.errors,
               Catch::Contains("docs/scaling.md, weak scaling: expected the line\n" + row));
}

}  // namespace
}  // namespace tessera
