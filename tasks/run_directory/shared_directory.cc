// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/shared_directory.h"

#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/comm/together.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Removes the token, whatever happens.
class Token {
 public:
  Token(const fs::path& path, const std::string& text) : path_(path) {
    write_file_atomically(path_, text);
  }
  ~Token() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

 private:
  fs::path path_;
};

// A name that no earlier run used: a file system may remember that there was none of a name.
std::string fresh_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool sees(const fs::path& path, const std::string& token, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::error_code error;
    if (fs::exists(path, error) && read_file(path) == token) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

void check_shared(const fs::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience) {
  if (processes.size() == 1) return;
  std::optional<Token> token;
  const auto path_of = [&](const std::string& text) {
    return directory / fmt::format(".shared_{}", text);
  };
  const std::string text = together(processes, "the run's directory", [&] {
    if (!processes.is_first()) return std::string();
    const std::string fresh = fresh_token();
    token.emplace(path_of(fresh), fresh);
    return fresh;
  })[0];
  const std::string seen = sees(path_of(text), text, patience) ? "yes" : "";
  const std::vector<std::string> answers =
      processes.gather(seen, "whether the run's directory is shared");
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < answers.size(); ++rank)
    if (answers[rank].empty()) blind.push_back(processes.name(static_cast<int>(rank)));
  if (blind.empty()) return;
  fail(
      "{} is not shared: {} {} not see what {} wrote there; give --job_log_dir on a file system "
      "that all hosts have mounted, under the same path on each",
      directory.string(), fmt::join(blind, ", "), blind.size() == 1 ? "does" : "do",
      processes.name(0));
}

}  // namespace tessera
