// SPDX-License-Identifier: Apache-2.0
// gpu_check: checks and times this machine's GPUs. Runs its items one after the other, each in a
// process of its own, and continues after every failure.
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "core/base/seconds.h"
#include "core/flags/flags.h"
#include "plugins/cuda/attention/attention_choice.h"
#include "plugins/cuda/check/report.h"
#include "plugins/cuda/communicator/cuda_communicator.h"
#include "plugins/cuda/device/driver.h"
#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/progress.h"
#include "plugins/cuda/gemm/product.h"
#include "plugins/loader.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;
using Clock = std::chrono::steady_clock;
using Variables = std::map<std::string, std::string>;

constexpr int kSanitizerFoundErrors = 86;
constexpr const char* kSanitizerVariable = "TESSERA_COMPUTE_SANITIZER";
constexpr const char* kHead =
    R"(Checks and times this machine's GPUs, and writes a report to send back.

  gpu_check                  all stages (estimate: half an hour); run again to resume where it stopped
  gpu_check --campaign       ten minutes: the kernels, and each launch of three recipes beside its price

)";
constexpr const char* kEnd = R"(
Exit codes: 0 nothing failed; 1 an item failed; 2 bad usage.
)";
constexpr const char* kItemFile = "item.toml";  // From the process of an item.
constexpr double kCampaignMinutes = 10.0;

struct Flags {
  std::string filter;
  std::optional<double> budget;
  bool campaign = false;
  bool again = false;
  std::filesystem::path output = "runs/gpu_check";
  bool tiny = false;
  bool list = false;
  bool help = false;
  std::string item;
  FIELDS(About(filter, "only items whose line of --list matches, such as ^1 or norm",
               {.unit = "REGEX"}),
         About(budget, "start no item after that (default with --campaign: 10)",
               {.unit = "MINUTES", .above = 0}),
         About(campaign, "write one file to send, without names of machine, user and folders"),
         About(again, "run items again that failed or were not tested"),
         About(output, "folder of the report", {.unit = "DIR"}),
         About(tiny, "small shapes and models, for the virtual GPU of the tests"),
         About(list, "print the items"), About(help, "print this"),
         About(item, "run this item only, as gpu_check itself starts it", {.unit = "NAME"}))
};

// What a GPU or a library may lack or do wrong, with a switch. An item that fails runs again with
// one of them off, so that the report says which is at fault. Items of stage 2 that may use a
// library run by our own kernels and by the library.
struct Feature {
  std::string name, variable;         // Name and variable of the environment.
  std::string off;                    // Its value without the feature; in a list, one more word.
  std::vector<std::string> items;     // An item may use it if its name contains one of these words.
  std::string on = {}, library = {};  // Its value with a library, and which.
};

// Returns those that an item may use, in order of suspicion: the first that explains a failure is
// named first.
std::vector<Feature> features_of(std::string_view item) {
  static const std::vector<std::string> runs = {"curve", "steps", "preset"};
  static const std::vector<std::string> products = {"curve", "steps", "preset", "product",
                                                    "einsum"};
  static const std::vector<std::string> attention = {"curve bf16", "steps bf16", "preset",
                                                     "attention"};
  static const std::vector<Feature> rows = {
      {"CUDA graph", kGraphVariable, "off", runs},
      {"marks of progress", kProgressVariable, "off", runs},
      {"attention by cuDNN", kAttentionVariable, "own", attention, "cudnn", "cuDNN"},
      {"epilogues in cuBLASLt", kGemmVariable, "plain", products},
      {"timed choice of algorithms", kGemmVariable, "untimed", products},
      {"cuBLASLt", kGemmVariable, "reference", products, "cublaslt", "cuBLASLt"},
      {"collectives by NCCL", kCollectivesVariable, "peer", {"GPUs, "}}};
  std::vector<Feature> used;
  for (const Feature& row : rows)
    if (std::ranges::any_of(row.items,
                            [&](const std::string& word) { return item.find(word) != item.npos; }))
      used.push_back(row);
  return used;
}

// Returns the value of the variable with the feature off.
std::string value_without(const Feature& feature, const std::string& before) {
  const bool is_list = feature.variable == kGemmVariable;
  return is_list && !before.empty() ? before + "," + feature.off : feature.off;
}

// Makes the item by a library: "op attention, with attention by cuDNN".
Item with_library(Item item, const Feature& feature) {
  item.name += ", with " + feature.name;
  item.environment[feature.variable] = feature.on;
  item.tests = feature.library;
  item.run = [library = feature.library, run = item.run]() -> Findings {
    const std::string missing = why_no_library(library);
    return missing.empty() ? run() : Findings::not_tested(missing);
  };
  return item;
}

// Lists the items in the order in which they run.
std::vector<Item> all_items(const CheckOptions& options) {
  std::vector<Item> all;
  for (const std::vector<Item>& part : {kernel_items(options.tiny), run_items(options)}) {
    for (const Item& item : part) {
      const size_t at = all.size();
      all.push_back(item);
      if (item.stage != 2) continue;  // Runs of stage 4 need folders of their own.
      for (const Feature& feature : features_of(item.name)) {
        if (feature.on.empty()) continue;
        all[at].environment[feature.variable] = feature.off;
        all.push_back(with_library(item, feature));
      }
    }
  }
  std::ranges::stable_sort(all, {}, &Item::stage);
  if (options.campaign) {
    std::erase_if(all, [](const Item& item) {
      return item.stage == 3 || item.stage == 4 ||
             (item.stage == 5 && !item.name.starts_with(kCampaignPreset));
    });
    // How many kernels are checked depends on the time that is left.
    std::ranges::stable_sort(all, {}, [](const Item& item) { return item.stage == 2; });
  }
  return all;
}

// Says why compute-sanitizer cannot be used; "" if it can.
std::string why_no_sanitizer(std::string& program) {
  const char *const named = std::getenv(kSanitizerVariable), *const home = std::getenv("CUDA_HOME");
  program = named != nullptr ? named : "compute-sanitizer";
  if (named != nullptr) return "";
  if (std::getenv(kDriverVariable) != nullptr)
    return fmt::format("compute-sanitizer needs NVIDIA's driver, but {} names another one",
                       kDriverVariable);
  if (program_exists(program)) return "";
  for (const std::string folder : {home == nullptr ? "" : home, "/usr/local/cuda"})
    if (filesystem::exists(program = folder + "/bin/compute-sanitizer")) return "";
  return fmt::format(
      "compute-sanitizer is not installed; it is a part of the CUDA toolkit, and {} "
      "can name its file",
      kSanitizerVariable);
}

class Checker {
 public:
  // After that time no item begins; 0: no limit. Error if the folder has the report of another
  // build, or of other options.
  Checker(const CheckOptions& options, double budget_seconds)
      : options_(options), budget_seconds_(budget_seconds), items_(all_items(options)) {
    filesystem::create_directories(options.output / "logs");
    const std::string about =
        fmt::format("tessera {}{}", build_stamp(), options.tiny ? " with --tiny" : "");
    if (filesystem::exists(file_)) report_ = read_toml<Report>(file_);
    if (!report_.about.empty() && report_.about != about)
      fail("{} is of {}, but this is {}; name another folder with --output=DIR, or remove that one",
           file_.string(), report_.about, about);
    report_.about = about;
    why_no_sanitizer_ = why_no_sanitizer(sanitizer_);
  }

  // Returns the exit code. Writes report.toml after each item, at the end report.txt and the file
  // to send back.
  int run(const std::regex& filter, bool again) {
    if (again)
      std::erase_if(report_.items, [](const Findings& each) { return each.status != kPassed; });
    for (const Item& item : items_) {
      if (!std::regex_search(item.line(), filter) || report_.find(item.name) != nullptr) continue;
      if (time_is_over()) {
        fmt::print(std::cout, "the time of --budget is over; the same command resumes at {}\n",
                   item.name);
        break;
      }
      report_.attempts = report_.running == item.name ? report_.attempts + 1 : 1;
      report_.running = item.name;
      write_toml(file_, report_);
      const Clock::time_point begin = Clock::now();
      Findings& found = report_.items.emplace_back(checked(item));
      found.stage = item.stage, found.name = item.name, found.seconds = seconds_since(begin);
      report_.running.clear();
      fmt::print(std::cout, "{:<46} {:>7.1f} s  {:<10}  {}\n", item.line(), found.seconds,
                 found.status, nodes_text({found}));
      std::cout.flush();
    }
    write_toml(file_, report_);
    write_report();
    return std::ranges::count(report_.items, kFailed, &Findings::status) > 0 ? 1 : 0;
  }

 private:
  bool time_is_over() const {
    return budget_seconds_ > 0.0 && seconds_since(begin_) >= budget_seconds_;
  }
  std::chrono::seconds limit_of(const Item& item) const {
    return std::chrono::seconds(options_.tiny ? 6 * item.seconds : item.seconds);
  }

  Findings checked(const Item& item) {
    if (report_.attempts > 2)
      return {.status = kFailed,
              .failures = {"gpu_check or the machine stopped in this item twice"},
              .notes = {"not run a third time"}};
    if (!item.tool.empty() && !why_no_sanitizer_.empty())
      return Findings::not_tested(why_no_sanitizer_);
    Findings found = run_once(item, {}, item.name);
    if (found.status == kFailed) find_fault(item, found.notes);
    return found;
  }

  // Runs the item once more as it is, then with each feature off that it may use, and with all.
  void find_fault(const Item& item, std::vector<std::string>& notes) {
    const auto passes = [&](const std::string& change, const Variables& variables) {
      if (time_is_over()) return false;
      // Without the implementation that it tests it is not tested, but it may pass.
      const bool passed = run_once(item, variables, item.name + " " + change).status != kFailed;
      notes.push_back(change + (passed ? ": passed" : ": failed"));
      return passed;
    };
    if (passes("run again", {})) {
      notes.emplace_back("it passes at times");
      return;
    }
    Variables all;
    std::vector<std::string> guilty;
    for (const Feature& each : features_of(item.name)) {
      const char* const now = std::getenv(each.variable.c_str());
      const std::string before = now == nullptr ? "" : now;
      const std::string value = value_without(each, before);
      std::string& together = all.try_emplace(each.variable, before).first->second;
      together = value_without(each, together);
      if (passes(fmt::format("without {} ({}={})", each.name, each.variable, value),
                 {{each.variable, value}}))
        guilty.push_back(each.name);
    }
    std::string verdict = "none of the features that can be turned off";
    if (!guilty.empty())
      verdict = fmt::format("{}", fmt::join(guilty, ", or "));
    else if (all.size() > 1 && passes("without all of them", all))
      verdict = "several of these features together";
    notes.push_back(time_is_over() ? "the time of --budget was over" : "at fault: " + verdict);
  }

  // Starts the item's process, whose output goes to `log`.
  std::vector<std::string> command(const Item& item, const Variables& variables,
                                   const filesystem::path& log) const {
    std::vector<std::string> words = {"sh", "-c", "exec >\"$0\" 2>&1; exec env \"$@\"",
                                      log.string()};
    for (const Variables& each : {item.environment, variables})
      for (const auto& [name, value] : each) words.push_back(name + "=" + value);
    if (!item.tool.empty())
      words.insert(words.end(), {sanitizer_, "--tool", item.tool, "--error-exitcode",
                                 std::to_string(kSanitizerFoundErrors)});
    words.insert(words.end(),
                 {self_, "--item=" + item.name, "--output=" + options_.output.string()});
    if (options_.tiny) words.emplace_back("--tiny");
    return words;
  }

  Findings run_once(const Item& item, const Variables& variables,
                    const std::string& log_name) const {
    const filesystem::path file = options_.output / kItemFile,
                           log = options_.place("logs", log_name).string() + ".txt";
    filesystem::remove(file);
    const std::optional<int> code =
        ChildProcess(command(item, variables, log)).wait(Clock::now() + limit_of(item));
    Findings found{.status = kFailed};
    if (filesystem::exists(file)) found = read_toml<Findings>(file);
    const std::string ending = unexpected_ending(item, code, found.status);
    if (!ending.empty()) found.failures.push_back(ending), found.status = kFailed;
    return found;
  }

  // Says what the exit status says and the findings do not; "" if nothing.
  std::string unexpected_ending(const Item& item, std::optional<int> code,
                                const std::string& found) const {
    if (!code) return fmt::format("it was killed after {} s", limit_of(item).count());
    if (*code == kSanitizerFoundErrors)
      return fmt::format("compute-sanitizer {} has found errors", item.tool);
    if (*code < 0) return "a signal ended it";
    return *code == (found == kFailed ? 1 : 0) ? "" : fmt::format("its exit code is {}", *code);
  }

  void write_report() const {
    const filesystem::path& folder = options_.output;
    const std::string whole = report_text(report_, items_, true);
    write_file_atomically(folder / "report.txt", whole);
    fmt::print(std::cout, "\n{}", report_text(report_, items_, false));
    filesystem::path file = folder / (options_.campaign ? "campaign.toml" : "gpu_check.tar.gz");
    if (options_.campaign)
      write_file_atomically(file, campaign_text(report_, whole, options_));
    else if (ChildProcess({"tar", "-czf", file.string(), "-C", folder.string(), "report.toml",
                           "report.txt", "logs"})
                 .wait(in_seconds(60.0)) != 0)
      file = "tar failed: report.toml, report.txt and logs in " + folder.string();
    fmt::print(std::cout, "to send back: {}\n", file.string());
  }

  CheckOptions options_;
  double budget_seconds_;
  filesystem::path file_ = options_.output / "report.toml";
  std::string self_ = filesystem::canonical("/proc/self/exe");  // A build may replace the file.
  std::vector<Item> items_;
  Report report_;
  std::string sanitizer_, why_no_sanitizer_;
  Clock::time_point begin_ = Clock::now();
};

// In the process of an item. Returns the exit code.
int run_item(const CheckOptions& options, const std::string& name) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // It does not outlive gpu_check.
  const std::vector<Item> items = all_items(options);
  const auto item = std::ranges::find(items, name, &Item::name);
  if (item == items.end()) fail("no item '{}'", name);
  Findings found;
  found.note(name, [&] { found = item->run(); });
  for (const auto& [library, count] : noted_implementations()) found.nodes[library] = count;
  if (found.failures.empty() && !item->tests.empty() && !found.nodes.contains(item->tests)) {
    const std::string why = why_no_library(item->tests);
    found.status = kNotTested;
    found.failures = {why.empty() ? item->tests + " computed no node of it" : why};
  }
  if (found.status == kPassed && !found.failures.empty()) found.status = kFailed;
  for (std::string& each : found.failures) each = valid_utf8(each);
  write_toml(options.output / kItemFile, found);
  return found.status == kFailed ? 1 : 0;
}

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    fail("--filter={}: no regular expression: {}", text, error.what());
  }
}

int act(const std::vector<std::string>& arguments) {
  Flags flags;
  const std::vector<Flag> known = flags_of(flags);
  read_flags(known, split_flags(known, arguments));
  if (flags.help) {
    std::cout << kHead << flags_help(known) << kEnd;
    return 0;
  }
  const CheckOptions options{
      .output = filesystem::absolute(flags.output), .tiny = flags.tiny, .campaign = flags.campaign};
  const std::regex filter = filter_of(flags.filter);
  if (!flags.item.empty()) return run_item(options, flags.item);
  if (flags.list) {
    for (const Item& item : all_items(options)) fmt::print(std::cout, "{}\n", item.line());
    return 0;
  }
  load_driver();  // Without one nothing can be checked.
  filesystem::create_directories(options.output);
  const double minutes = flags.budget.value_or(flags.campaign ? kCampaignMinutes : 0.0);
  return Checker(options, 60.0 * minutes).run(filter, flags.again);
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
