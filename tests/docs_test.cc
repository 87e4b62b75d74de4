// SPDX-License-Identifier: Apache-2.0
// What the documents tell people to type works: every ./runexp and ./flat_tokens command in them is
// run (without its training steps, unless they are few), and code said to be in a file is in it.
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

const filesystem::path kRoot = TESSERA_SOURCE_DIR;
const filesystem::path kPrograms = filesystem::path(TESSERA_BINARY_DIR) / "bin";

struct Block {
  std::string document;
  std::string language;
  std::string text;
};

std::vector<Block> blocks() {
  std::vector<filesystem::path> documents = {kRoot / "README.md"};
  for (const auto& entry : filesystem::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  std::sort(documents.begin(), documents.end());
  std::vector<Block> found;
  for (const filesystem::path& document : documents) {
    std::istringstream lines(read_file(document));
    std::string line;
    bool inside = false;
    while (std::getline(lines, line)) {
      if (line.starts_with("```")) {
        if (!inside) found.push_back({document.filename().string(), line.substr(3), ""});
        inside = !inside;
      } else if (inside) {
        found.back().text += line + "\n";
      }
    }
    INFO(document.string() << ": a block does not end");
    REQUIRE_FALSE(inside);
  }
  return found;
}

// A folder that looks like the tree to the commands, so that what they write lands nowhere else.
void furnish(const filesystem::path& folder) {
  for (const auto& entry : filesystem::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (name == "runs" || name == "runexp" || name == "flat_tokens" || name == "build") continue;
    filesystem::create_symlink(entry.path(), folder / name);
  }
  // The programs themselves, not the launchers, which would build while the tests run.
  filesystem::create_symlink(kPrograms / "runexp", folder / "runexp");
  filesystem::create_symlink(kPrograms / "flat_tokens", folder / "flat_tokens");
}

// Long training is left out; everything before it is not. What is said to take a few steps takes
// them: commands after it read its checkpoint.
std::string without_steps(const std::string& command) {
  static const std::regex kTrainsLong(
      R"(^\./runexp\b(?! new )(?!.*--(list|describe|diff|help|version|mode|dry_run|set num_train_steps=20 )))");
  return std::regex_search(command, kTrainsLong) ? command + " --dry_run" : command;
}

TEST_CASE("commands in the documents run") {
  const TemporaryDirectory folder;
  furnish(folder.path());
  int64_t commands = 0;
  for (const Block& block : blocks()) {
    if (block.language != "sh") continue;
    std::istringstream lines(block.text);
    std::string command;
    while (std::getline(lines, command)) {
      if (!command.starts_with("./runexp") && !command.starts_with("./flat_tokens")) continue;
      ++commands;
      const std::string log = (folder / "log").string();
      const std::string line = fmt::format("cd '{}' && {} >'{}' 2>&1 </dev/null",
                                           folder.path().string(), without_steps(command), log);
      const int status = std::system(line.c_str());
      INFO(block.document << ": " << command << "\n" << read_bytes(log));
      REQUIRE(WIFEXITED(status));
      REQUIRE(WEXITSTATUS(status) == 0);
    }
  }
  REQUIRE(commands >= 10);
}

TEST_CASE("code that a document quotes from a file is in it") {
  int64_t quotes = 0;
  static const std::regex kNamed(R"(^(?://|#) ((?:[\w-]+/)+[\w.-]+)\n)");
  for (const Block& block : blocks()) {
    std::smatch match;
    if (!std::regex_search(block.text, match, kNamed)) continue;
    const filesystem::path file = kRoot / match[1].str();
    if (!filesystem::exists(file)) continue;
    ++quotes;
    INFO(block.document << " quotes " << file.string());
    REQUIRE(read_file(file).find(match.suffix().str()) != std::string::npos);
  }
  REQUIRE(quotes >= 2);
}

}  // namespace
}  // namespace tessera
