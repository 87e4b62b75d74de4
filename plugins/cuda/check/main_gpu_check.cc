// SPDX-License-Identifier: Apache-2.0
// gpu_check: checks and times this machine's GPUs.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "plugins/cuda/check/check.h"

namespace tessera::cuda {
namespace {

constexpr const char* kHelp =
    R"(Checks and times this machine's GPUs, and writes a report to send back.

  gpu_check                  all stages (estimate: half an hour); run again to resume where it stopped

  --stage=N[,N...]           only these stages: 1 GPU and launches, 2 kernels, 3 compute-sanitizer,
                             4 training, 5 speed
  --filter=REGEX             only items whose name matches, such as --filter=norm
  --budget=MINUTES           start no item after that
  --again                    run items again that failed or were not tested
  --output=DIR               folder of the report (default: runs/gpu_check)
  --device=N[,N...]          GPUs to use (default: all), as CUDA_VISIBLE_DEVICES numbers them
  --tiny                     small shapes and models, for the virtual GPU of the tests
  --list                     print the items
  --help

Exit codes: 0 nothing failed; 1 an item failed; 2 bad usage.
)";

struct CommandLine {
  CheckRun run;
  std::string item, result;  // Of the process of one item.
  bool lists = false, helps = false;
};

double positive_number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0.0))
    fail("{}={}: expected a number above 0, such as {}=30", flag, text, flag);
  return value;
}

std::vector<int> stages_of(const std::string& text) {
  std::vector<int> stages;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (word.size() != 1 || word[0] < '1' || word[0] > '0' + kStages)
      fail("--stage={}: '{}' is not a stage; expected numbers from 1 to {}, such as --stage=1,2",
           text, word, kStages);
    stages.push_back(word[0] - '0');
    begin = end + 1;
  }
  return stages;
}

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    fail("--filter={}: no regular expression: {}", text, error.what());
  }
}

std::string devices_of(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789,") != std::string::npos)
    fail("--device={}: expected numbers of GPUs, such as --device=0", text);
  return text;
}

void set_flag(CommandLine& line, const std::string& flag, const std::string& value) {
  if (flag == "--stage")
    line.run.stages = stages_of(value);
  else if (flag == "--filter")
    line.run.filter = filter_of(value);
  else if (flag == "--budget")
    line.run.budget_seconds = 60.0 * positive_number(flag, value);
  else if (flag == "--output")
    line.run.options.output = value;
  else if (flag == "--device")
    ::setenv("CUDA_VISIBLE_DEVICES", devices_of(value).c_str(), 1);
  else if (flag == "--item")
    line.item = value;
  else
    line.result = value;
}

CommandLine parse(const std::vector<std::string>& arguments) {
  static const std::vector<std::string> kValued = {"--stage",  "--filter", "--budget", "--output",
                                                   "--device", "--item",   "--result"};
  static const std::vector<std::string> kPlain = {"--again", "--tiny", "--list", "--help"};
  CommandLine line;
  line.run.options.output = "runs/gpu_check";
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    if (std::ranges::count(kValued, flag) > 0) {
      if (!has_value) fail("{} needs a value: {}=VALUE", flag, flag);
      set_flag(line, flag, argument.substr(equals + 1));
      continue;
    }
    std::vector<std::string> all = kPlain;
    all.insert(all.end(), kValued.begin(), kValued.begin() + 5);
    if (std::ranges::count(kPlain, flag) == 0)
      fail("no flag {}{}; see --help", flag, did_you_mean(flag, all));
    if (has_value) fail("{} takes no value", flag);
    line.run.again |= flag == "--again";
    line.run.options.tiny |= flag == "--tiny";
    line.lists |= flag == "--list";
    line.helps |= flag == "--help";
  }
  line.run.options.output = std::filesystem::absolute(line.run.options.output);
  return line;
}

int act(const std::vector<std::string>& arguments) {
  const CommandLine line = parse(arguments);
  if (line.helps) {
    std::cout << kHelp;
    return 0;
  }
  if (!line.item.empty()) return run_item(line.run.options, line.item, line.result);
  if (!line.lists) return check(line.run, std::cout);
  for (const Item& item : all_items(line.run.options))
    fmt::print(std::cout, "{} {}\n", item.stage, item.name);
  return 0;
}

}  // namespace
}  // namespace tessera::cuda

int main(int argc, char** argv) {
  tessera::prepare_program();
  try {
    return tessera::cuda::act({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(std::cerr, "gpu_check: {}\n", error.what());
    return 2;
  }
}
