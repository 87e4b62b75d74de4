// SPDX-License-Identifier: Apache-2.0
#include "tests/support/metrics_lines.h"

#include <fstream>
#include <functional>
#include <optional>

namespace tessera {
namespace {

std::optional<std::string> member(const std::string& line, const std::string& key) {
  const std::string label = "\"" + key + "\": ";
  const size_t at = line.find(label);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + label.size();
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

void each_line(const std::filesystem::path& directory,
               const std::function<void(const std::string&)>& visit) {
  std::ifstream lines(directory / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) visit(line);
}

}  // namespace

std::vector<std::string> values_of(const std::filesystem::path& directory, const std::string& key) {
  std::vector<std::string> values;
  each_line(directory, [&](const std::string& line) {
    if (const auto value = member(line, key)) values.push_back(*value);
  });
  return values;
}

std::vector<double> numbers_of(const std::filesystem::path& directory, const std::string& key) {
  std::vector<double> numbers;
  for (const std::string& value : values_of(directory, key)) numbers.push_back(std::stod(value));
  return numbers;
}

std::map<std::string, std::string> losses_of(const std::filesystem::path& directory) {
  std::map<std::string, std::string> losses;
  each_line(directory, [&](const std::string& line) {
    if (const auto loss = member(line, "loss")) losses[*member(line, "step")] = *loss;
  });
  return losses;
}

}  // namespace tessera
