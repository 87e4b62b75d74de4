// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/runs.h"

#include <iostream>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/io/file.h"
#include "plugins/runexp/runexp.h"

namespace tessera::cuda {

void run(const std::filesystem::path& directory, std::vector<std::string> arguments) {
  arguments.push_back("--job_log_dir=" + directory.string());
  std::ostringstream errors;
  const int code = run_runexp(arguments, std::cout, errors);
  std::string text = errors.str();
  std::cerr << text;
  text.erase(text.find_last_not_of('\n') + 1);
  if (code != 0) fail("exit code {}: {}", code, text);
}

std::vector<std::string> settings(const std::vector<std::string>& values) {
  std::vector<std::string> arguments;
  for (const std::string& value : values) arguments.insert(arguments.end(), {"--set", value});
  return arguments;
}

std::map<int64_t, Json> training_lines(const std::filesystem::path& directory) {
  const std::string file = (directory / "metrics.jsonl").string();
  std::istringstream lines(read_file(file));
  std::map<int64_t, Json> found;
  for (std::string line; std::getline(lines, line);) {
    const Json values = parse_json(line, file);
    if (values.find("loss") != nullptr) found[values.at("step").as_integer()] = values;
  }
  return found;
}

}  // namespace tessera::cuda
