// SPDX-License-Identifier: Apache-2.0
// gpu_check: checks and times this machine's GPUs.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/flags/flags.h"
#include "plugins/cuda/check/check.h"

namespace tessera::cuda {
namespace {

constexpr const char* kHead =
    R"(Checks and times this machine's GPUs, and writes a report to send back.

  gpu_check                  all stages (estimate: half an hour); run again to resume where it stopped

)";
constexpr const char* kEnd = R"(
Exit codes: 0 nothing failed; 1 an item failed; 2 bad usage.
)";

struct Flags {
  std::string stage;
  std::string filter;
  std::optional<double> budget;
  bool again = false;
  std::filesystem::path output = "runs/gpu_check";
  std::optional<std::string> device;
  bool tiny = false;
  bool list = false;
  bool help = false;
  std::string item;
  std::filesystem::path result;
  FIELDS(About(stage,
               "only these stages: 1 GPU and launches, 2 kernels, 3 compute-sanitizer, 4 training, "
               "5 speed",
               {.unit = "N[,N...]"}),
         About(filter, "only items whose name matches, such as --filter=norm", {.unit = "REGEX"}),
         About(budget, "start no item after that", {.unit = "MINUTES", .above = 0}),
         About(again, "run items again that failed or were not tested"),
         About(output, "folder of the report", {.unit = "DIR"}),
         About(device, "GPUs to use (default: all), as CUDA_VISIBLE_DEVICES numbers them",
               {.unit = "N[,N...]"}),
         About(tiny, "small shapes and models, for the virtual GPU of the tests"),
         About(list, "print the items"), About(help, "print this"),
         About(item, "run this item only, as gpu_check itself starts it", {.unit = "NAME"}),
         About(result, "of --item: what it found", {.unit = "FILE"}))
};

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

int act(const std::vector<std::string>& arguments) {
  Flags flags;
  const std::vector<Flag> known = flags_of(flags);
  read_flags(known, split_flags(known, arguments));
  if (flags.help) {
    std::cout << kHead << flags_help(known) << kEnd;
    return 0;
  }
  CheckRun run{.options = {.output = std::filesystem::absolute(flags.output), .tiny = flags.tiny},
               .budget_seconds = 60.0 * flags.budget.value_or(0.0),
               .again = flags.again};
  if (!flags.stage.empty()) run.stages = stages_of(flags.stage);
  if (!flags.filter.empty()) run.filter = filter_of(flags.filter);
  if (flags.device) ::setenv("CUDA_VISIBLE_DEVICES", devices_of(*flags.device).c_str(), 1);
  if (!flags.item.empty()) return run_item(run.options, flags.item, flags.result);
  if (!flags.list) return check(run, std::cout);
  for (const Item& item : all_items(run.options))
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
