// SPDX-License-Identifier: Apache-2.0
// Tests what `runexp new` rejects and writes. tests/out_of_tree/new_project.sh builds the result.
#include "plugins/runexp/new_project.h"

#include "core/io/file.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string error_for(const std::filesystem::path& folder) {
  return error_of([&] { write_new_project(folder, "runexp"); });
}

TEST_CASE("a new project has the files of the template with its own name") {
  const TemporaryDirectory scratch;
  const std::string next = write_new_project(scratch / "letters/", "/opt/my tools/runexp");
  REQUIRE_THAT(next, Catch::Contains("\n  cd " + (scratch / "letters").string() + "\n") &&
                         Catch::Contains("\n  '/opt/my tools/runexp' --plugin_path="
                                         "build/lib/tessera/experiments --exp=letters.Sorter\n"));
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "letters")) {
    ++files;
    const std::string text = read_file(entry.path());
    INFO(entry.path().string());
    REQUIRE(text.find("my_project") == text.npos);
    REQUIRE(text.find("SPDX") == text.npos);
  }
  REQUIRE(files == static_cast<int64_t>(new_project_files().size()));
  REQUIRE_THAT(read_file(scratch / "letters/README.md"),
               Catch::Contains("\n'/opt/my tools/runexp' --exp=letters.Sorter\n") &&
                   !Catch::Contains("\nrunexp"));
  REQUIRE(files >= 9);
  REQUIRE_THAT(error_for(scratch / "letters"),
               Catch::Contains("it already exists; choose another name or remove it"));
}

TEST_CASE("a name that is not a valid C++ namespace is rejected with a valid suggestion") {
  const std::pair<const char*, const char*> cases[] = {{"my-project", "my_project"},
                                                       {"MyProject", "myproject"},
                                                       {"3d", "my_3d"},
                                                       {"class", "my_class"},
                                                       {"tessera", "my_tessera"},
                                                       {"a b", "a_b"},
                                                       {"a;rm", "a_rm"},
                                                       {"...", "my_project"},
                                                       {"\xc3\xa9t\xc3\xa9", "t"}};
  const TemporaryDirectory scratch;
  for (const auto& [name, legal] : cases) {
    REQUIRE(error_for(scratch / name) ==
            fmt::format("new {}: a project's name is also a C++ namespace: use lowercase "
                        "letters, digits and _, but not a C++ keyword; did you mean {}?",
                        name, legal));
    REQUIRE_FALSE(std::filesystem::exists(scratch / name));
  }
  REQUIRE(
      error_for(scratch / "quickstart") ==
      "new quickstart: Tessera has a family of experiments with that name; choose another, such "
      "as my_quickstart");
}

}  // namespace
}  // namespace tessera
