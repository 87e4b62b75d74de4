// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/check.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "plugins/cuda/check/features.h"
#include "plugins/cuda/device/driver.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/loader.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;
using Clock = std::chrono::steady_clock;
using Variables = std::map<std::string, std::string>;

constexpr int kSanitizerFoundErrors = 86;
constexpr const char* kSanitizerVariable = "TESSERA_COMPUTE_SANITIZER";
constexpr size_t kLogBytes = 4000;  // Of a failed item's output, in the report.

// The file of compute-sanitizer, or the reason why it cannot be used.
std::pair<std::string, std::string> find_sanitizer() {
  if (const char* const file = std::getenv(kSanitizerVariable)) return {file, ""};
  if (std::getenv(kDriverVariable) != nullptr)
    return {"", fmt::format("compute-sanitizer needs NVIDIA's driver, but {} names another one",
                            kDriverVariable)};
  if (program_exists("compute-sanitizer")) return {"compute-sanitizer", ""};
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string folder : {home == nullptr ? "" : home, "/usr/local/cuda"})
    if (const std::string file = folder + "/bin/compute-sanitizer"; filesystem::exists(file))
      return {file, ""};
  return {"",
          fmt::format("compute-sanitizer is not installed; it is a part of the CUDA toolkit, and "
                      "{} can name its file",
                      kSanitizerVariable)};
}

std::string file_name(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text;
}

class Checker {
 public:
  explicit Checker(const CheckRun& run, std::ostream& out)
      : run_(run),
        out_(out),
        items_(all_items(run.options)),
        report_(run.options.output, fmt::format("tessera {}{}", build_stamp(),
                                                run.options.tiny ? " with --tiny" : "")) {}

  int run() {
    filesystem::create_directories(run_.options.output / "logs");
    if (run_.again) report_.forget_what_did_not_pass();
    report_.save();
    for (const Item& item : items_) {
      if (!is_selected(item) || report_.find(item.name) != nullptr) continue;
      if (run_.budget_seconds > 0.0 && seconds_since(begin_) >= run_.budget_seconds) {
        fmt::print(out_, "the time of --budget is over; the same command resumes at {}\n",
                   item.name);
        break;
      }
      const int attempts = report_.begin(item.name);
      report_.add(attempts > 2 ? interrupted(item) : checked(item));
      const Result& result = report_.results().back();
      fmt::print(out_, "{} {:<44} {:>7.1f} s  {}\n", item.stage, item.name, result.seconds,
                 result.status);
      out_.flush();
    }
    write_report();
    const auto failed = [](const Result& each) { return each.status == "failed"; };
    return std::ranges::any_of(report_.results(), failed) ? 1 : 0;
  }

 private:
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::chrono::seconds limit_of(const Item& item) const {
    return std::chrono::seconds(run_.options.tiny ? 6 * item.seconds : item.seconds);
  }
  // By the flags, or because a selected item needs it.
  bool is_selected(const Item& item) const {
    return ((run_.stages.empty() || std::ranges::count(run_.stages, item.stage) > 0) &&
            std::regex_search(item.name, run_.filter)) ||
           std::ranges::any_of(items_, [&](const Item& other) {
             return other.needs == item.name && is_selected(other);
           });
  }
  static Result result_of(const Item& item, std::string status, std::string reason) {
    return {.stage = item.stage,
            .name = item.name,
            .status = std::move(status),
            .failures = {std::move(reason)}};
  }
  static Result interrupted(const Item& item) {
    Result result =
        result_of(item, "failed", "gpu_check or the machine stopped in this item twice");
    result.verdict = "not run a third time";
    return result;
  }

  Result checked(const Item& item) {
    if (!item.needs.empty()) {
      const Result* const needed = report_.find(item.needs);
      if (needed == nullptr || needed->status != "passed")
        return result_of(item, "not tested", fmt::format("'{}' did not pass", item.needs));
    }
    if (!item.tool.empty() && sanitizer_.first.empty())
      return result_of(item, "not tested", sanitizer_.second);
    const Clock::time_point begin = Clock::now();
    Result result = run_once(item, {}, item.name);
    if (result.status == "failed") find_fault(item, result);
    result.seconds = seconds_since(begin);
    return result;
  }

  // Runs the item once more as it is, then with each feature off that it may use, and with all.
  void find_fault(const Item& item, Result& result) {
    const auto passes = [&](const std::string& change, const Variables& variables) {
      const std::string log = fmt::format("{} {}", item.name, change);
      // Without the implementation that it tests it is not tested, but it may pass.
      const bool passed = run_once(item, variables, log).status != "failed";
      result.retries.push_back({change, passed ? "passed" : "failed"});
      return passed;
    };
    if (passes("run again", {})) {
      result.verdict = "it passes at times";
      return;
    }
    std::map<std::string, std::string> all;
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
    if (!guilty.empty())
      result.verdict = fmt::format("at fault: {}", fmt::join(guilty, ", or "));
    else if (all.size() > 1 && passes("without all of them", all))
      result.verdict = "at fault: several of these features together";
    else
      result.verdict = "at fault: none of the features that can be turned off";
  }

  // The item's process, whose output goes to `log` and whose findings to `file`.
  std::vector<std::string> command(const Item& item, const Variables& variables,
                                   const filesystem::path& log,
                                   const filesystem::path& file) const {
    std::vector<std::string> words = {"sh", "-c", "exec >\"$0\" 2>&1; exec env \"$@\"",
                                      log.string()};
    for (const auto& [name, value] : item.environment) words.push_back(name + "=" + value);
    for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
    if (!item.tool.empty())
      words.insert(words.end(), {sanitizer_.first, "--tool", item.tool, "--error-exitcode",
                                 std::to_string(kSanitizerFoundErrors)});
    words.insert(words.end(), {self_, "--item=" + item.name, "--result=" + file.string(),
                               "--output=" + run_.options.output.string()});
    if (run_.options.tiny) words.emplace_back("--tiny");
    return words;
  }

  Result run_once(const Item& item, const Variables& variables, const std::string& log_name) const {
    const filesystem::path file = run_.options.output / "item.json";
    const filesystem::path log = run_.options.output / "logs" / (file_name(log_name) + ".txt");
    filesystem::remove(file);
    std::optional<int> status;
    {
      ChildProcess child(command(item, variables, log, file));
      status = child.wait(Clock::now() + limit_of(item));
    }
    Result result = result_of(item, "failed", "");
    if (filesystem::exists(file)) result = parse_result(parse_json(read_file(file), file.string()));
    const std::string ending = unexpected_ending(item, status, result.status);
    if (!ending.empty()) {
      result.status = "failed";
      std::erase(result.failures, "");
      result.failures.push_back(ending);
    }
    if (result.status == "failed" && filesystem::exists(log)) {
      const std::string text = read_file(log);
      result.log = text.substr(text.size() - std::min(text.size(), kLogBytes));
    }
    return result;
  }

  // What the exit status says that the findings do not; "" if nothing.
  std::string unexpected_ending(const Item& item, std::optional<int> status,
                                const std::string& found) const {
    if (!status) return fmt::format("it was killed after {} s", limit_of(item).count());
    if (*status == kSanitizerFoundErrors)
      return fmt::format("compute-sanitizer {} has found errors", item.tool);
    if (*status < 0) return "a signal ended it";
    if (*status != (found == "failed" ? 1 : 0)) return fmt::format("its exit code is {}", *status);
    return "";
  }

  void write_report() const {
    const filesystem::path& folder = run_.options.output;
    write_file_atomically(folder / "report.txt", report_text(report_, items_, true));
    fmt::print(out_, "\n{}", report_text(report_, items_, false));
    const std::string archive = (folder / "gpu_check.tar.gz").string();
    ChildProcess tar(
        {"tar", "-czf", archive, "-C", folder.string(), "report.json", "report.txt", "logs"});
    if (tar.wait(Clock::now() + std::chrono::minutes(1)) == 0)
      fmt::print(out_, "to send back: {}\n", archive);
    else
      fmt::print(out_, "tar failed; to send back: report.json, report.txt and logs in {}\n",
                 folder.string());
  }

  const CheckRun& run_;
  std::ostream& out_;
  std::string self_ = filesystem::canonical("/proc/self/exe");  // A build may replace the file.
  std::vector<Item> items_;
  Report report_;
  std::pair<std::string, std::string> sanitizer_ = find_sanitizer();
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

std::string stage_title(int stage) {
  static const char* const kTitles[kStages] = {"GPU and launches", "kernels", "compute-sanitizer",
                                               "training", "speed"};
  return kTitles[stage - 1];
}

std::vector<Item> all_items(const CheckOptions& options) {
  std::vector<Item> all;
  for (const std::vector<Item>& stage :
       {device_items(), kernel_items(options), training_items(options), timing_items(options)}) {
    for (const Item& item : stage) {
      all.push_back(item);
      if (item.stage != 2) continue;  // Runs of stage 4 need folders of their own.
      std::vector<Item> others = with_features(item);
      for (const Feature& feature : features_of(item.name))
        if (!feature.on.empty()) all.back().environment[feature.variable] = feature.off;
      std::ranges::move(others, std::back_inserter(all));
    }
  }
  std::ranges::stable_sort(all, {}, &Item::stage);
  return all;
}

void note_failures(Findings& findings, const std::string& what,
                   const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    findings.failures.push_back(what + ": " + error.what());
  }
}

int check(const CheckRun& run, std::ostream& out) {
  load_driver();  // Without one nothing can be checked.
  filesystem::create_directories(run.options.output);
  return Checker(run, out).run();
}

int run_item(const CheckOptions& options, const std::string& name,
             const std::filesystem::path& file) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // It does not outlive gpu_check.
  const std::vector<Item> items = all_items(options);
  const auto item = std::ranges::find(items, name, &Item::name);
  if (item == items.end()) fail("no item '{}'", name);
  Findings findings;
  try {
    findings = item->run();
  } catch (const std::exception& error) {
    findings.failures.emplace_back(error.what());
  }
  const std::map<std::string, int> nodes = noted_implementations();
  if (findings.not_tested.empty() && !item->tests.empty() && !nodes.contains(item->tests)) {
    const std::string why = why_no_library(item->tests);
    findings.not_tested = why.empty() ? item->tests + " computed no node of it" : why;
  }
  Result result{.stage = item->stage,
                .name = name,
                .status = "passed",
                .failures = findings.failures,
                .rows = findings.rows,
                .nodes = {nodes.begin(), nodes.end()}};
  if (!findings.failures.empty())
    result.status = "failed";
  else if (!findings.not_tested.empty())
    result.status = "not tested", result.failures = {findings.not_tested};
  write_file_atomically(file, result_json(result) + "\n");
  return result.status == "failed" ? 1 : 0;
}

}  // namespace tessera::cuda
