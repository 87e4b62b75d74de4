// SPDX-License-Identifier: Apache-2.0
// The run paths of programs and libraries. The loader resolves an empty or relative run path entry
// in the current directory, so anyone who can write there could run code.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Entries of the run path in `dynamic`, the output of `readelf -d` for a file.
std::vector<std::string> run_path_entries(const std::string& dynamic) {
  std::vector<std::string> entries;
  for (const std::string_view tag : {"(RUNPATH)", "(RPATH)"}) {
    size_t at = dynamic.find(tag);
    if (at == std::string::npos) continue;
    at = dynamic.find('[', at) + 1;
    const std::string path = dynamic.substr(at, dynamic.find("]\n", at) - at);
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find(':', begin), path.size());
      entries.push_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return entries;
}

bool is_absolute(const std::string& entry) {
  return entry.starts_with("/") || entry == "$ORIGIN" || entry.starts_with("$ORIGIN/");
}

std::string dynamic_section(const fs::path& file) {
  const TemporaryDirectory scratch;
  const Outcome outcome =
      shell(scratch.path(), fmt::format("env LC_ALL=C readelf -W -d '{}'", file.string()));
  INFO(outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

TEST_CASE("an empty run path entry is detected at any position") {
  const auto entries = [](const std::string& path) {
    return run_path_entries("0x1d (RUNPATH)  Library runpath: [" + path + "]\n");
  };
  REQUIRE(entries("$ORIGIN/../lib:") == std::vector<std::string>{"$ORIGIN/../lib", ""});
  REQUIRE(entries(":/lib") == std::vector<std::string>{"", "/lib"});
  REQUIRE(entries("") == std::vector<std::string>{""});
  REQUIRE(is_absolute("$ORIGIN/../lib"));
  REQUIRE_FALSE(is_absolute(""));
  REQUIRE_FALSE(is_absolute("lib"));
  REQUIRE_FALSE(is_absolute("$ORIGINAL/lib"));
}

TEST_CASE("no program or library of the build searches the current directory for libraries") {
  int files = 0;
  for (const char* folder : {"bin", "lib", "fixtures"})
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(TESSERA_BINARY_DIR) / folder)) {
      if (!entry.is_regular_file() || !read_bytes(entry.path())
                                           .starts_with("\x7f"
                                                        "ELF"))
        continue;
      ++files;
      for (const std::string& run_path : run_path_entries(dynamic_section(entry.path()))) {
        INFO(entry.path().string() << " looks in '" << run_path << "'");
        REQUIRE(is_absolute(run_path));
      }
    }
  REQUIRE(files > 20);
}

TEST_CASE("a library in the current directory is not loaded") {
  const TemporaryDirectory directory;
  // Libraries with the names that runexp needs, whose constructor writes a file.
  write_bytes(directory / "planted.c",
              "#include <stdio.h>\n"
              "__attribute__((constructor)) static void run(void) { fopen(\"ran\", \"w\"); }\n");
  const fs::path runexp = fs::path(TESSERA_BINARY_DIR) / "bin/runexp";
  const std::string script = fmt::format(
      "cc -shared -fPIC planted.c -o planted.so && for name in $(ldd '{}' | awk "
      "'/=>/ {{print $1}}'); do cp planted.so \"$name\"; done && '{}' --version",
      runexp.string(), runexp.string());
  REQUIRE(bash(directory.path(), script).exit_code == 0);
  REQUIRE(fs::exists(directory / "libonig.so.5"));
  REQUIRE_FALSE(fs::exists(directory / "ran"));
}

}  // namespace
}  // namespace tessera
