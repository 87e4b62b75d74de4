// SPDX-License-Identifier: Apache-2.0
// --mode=plan --search: searches (tasks/search), prints the result and writes its files.
#include "tasks/search/search.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/graph/mesh.h"
#include "core/io/file.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/search/output.h"
#include "tasks/task/config/experiment.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// "64", "8,16,32" or "8..64", which doubles from 8 on.
std::vector<int64_t> parse_device_list(const std::string& text) {
  constexpr std::string_view kTo = "..";
  const auto number = [](std::string_view part) {
    const int64_t devices = whole_number("search_devices", part, 1);
    if (devices > kMaxDevices)
      fail("--search_devices={}: expected at most {} devices", part, kMaxDevices);
    return devices;
  };
  std::vector<int64_t> list;
  if (const size_t to = text.find(kTo); to != std::string::npos) {
    const int64_t first = number(text.substr(0, to)), last = number(text.substr(to + kTo.size()));
    if (first > last) fail("--search_devices={}: {} is more than {}", text, first, last);
    for (int64_t devices = first; devices <= last; devices *= 2) list.push_back(devices);
    return list;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const int64_t devices = number(text.substr(begin, end - begin));
    if (std::ranges::find(list, devices) == list.end()) list.push_back(devices);
    begin = end + 1;
  }
  return list;
}

std::string heading_of_file(const SearchResult& result, const SearchOptions& options,
                            const std::string& command, const std::filesystem::path& file) {
  const PlannedCandidate& best = result.best_candidate();
  return fmt::format(
      "The best for {} on {} devices like {}, found by --search:\n{}\n{:.6g} s a step, {} bytes on "
      "each device.\n{} --set_file={}",
      enum_name(options.goal), best.devices(), options.hardware.title, best.candidate.text(),
      best.seconds, best.bytes, command, shell_quoted(file.string()));
}

struct Search {
  static constexpr CommandInfo kInfo{
      .mode = "plan",
      .flag = "search",
      .summary = "find the mesh, schedule and remat policy of the best step"};
  bool search = false;
  std::string hardware;
  ExperimentFlags experiment;
  std::optional<int64_t> devices;
  std::string search_devices;
  std::optional<int64_t> search_slice;
  bool search_state_dtype = false;
  int64_t search_seconds = 60;
  SearchGoal goal = SearchGoal::kTime;
  fs::path job_log_dir;
  FIELDS(About(search,
               "find the mesh, rules, pipeline schedule, number of microbatches and remat policy "
               "whose step is best, with the recipe's model and global batch"),
         About(hardware, "on this device: a TOML file of yours (docs/hardware.md), or one of",
               {.unit = "WHICH"}),
         experiment,
         About(devices, "with as many (default: as the recipe's mesh has)",
               {.unit = "N", .min = 1}),
         About(search_devices, "or each of these numbers: 64, 8,16,32 or 8..64, which doubles",
               {.unit = "LIST"}),
         About(search_slice,
               "devices with fast links to each other (default: as the recipe's mesh)", {.min = 1}),
         About(search_state_dtype,
               "search also with the optimizer's state in bf16, which changes what a run computes"),
         About(search_seconds, "end after this time with what was found", {.unit = "N", .min = 1}),
         About(goal, "what is best: the time or the cost of a step, or the memory of a device"),
         About(job_log_dir, "gets search.toml, search.json and search.svg", {.unit = "DIR"}))

  void check() const {
    experiment.check();
    required_hardware(hardware, "--search predicts times on a device");
    if (devices && !search_devices.empty())
      fail("--devices and --search_devices both say how many devices there are: give one of them");
    if (!search_devices.empty()) parse_device_list(search_devices);
  }

  CommandResult run(const CommandContext& context) const {
    const ConfiguredExperiment configured = configured_together(experiment, context);
    if (context.processes.size() > 1) fail("--search needs no devices: start it as one process");
    const SettingStyle style =
        configured.config_file.empty() ? SettingStyle::kKnobs : SettingStyle::kFields;
    const SearchOptions options = this->options();
    const SearchResult result = tessera::search(
        [this](const std::vector<std::string>& sets) {
          return configured_by(experiment, sets).config;
        },
        style, devices.value_or(1), options);
    SearchTexts texts{.experiment = configured.entry.name,
                      .command = training_command(configured, {.experiment = experiment})};
    if (!job_log_dir.empty()) texts.set_file = write_files(result, options, style, texts.command);
    context.out << search_text(result, options, style, texts);
    if (!result.best) fail("{}", nothing_fits(result, options));
    return check_printed();
  }

 private:
  SearchOptions options() const {
    SearchOptions options{.hardware = hardware_of(hardware),
                          .goal = goal,
                          .seconds = static_cast<double>(search_seconds),
                          .run_directory = job_log_dir};
    options.hardware.launches.clear();  // docs/launch_costs.md#predictions
    if (!search_devices.empty()) options.space.devices = parse_device_list(search_devices);
    if (devices) options.space.devices = {*devices};
    options.space.slice = search_slice;
    options.space.searches_state_dtype = search_state_dtype;
    return options;
  }

  // Returns search.toml as a word of a command; "" if nothing fits.
  std::string write_files(const SearchResult& result, const SearchOptions& options,
                          SettingStyle style, const std::string& command) const {
    fs::create_directories(job_log_dir);
    write_file_atomically(job_log_dir / "search.json", search_json(result, options, style) + "\n");
    write_file_atomically(job_log_dir / "search.svg", search_svg(result, options));
    if (!result.best) return "";
    const fs::path file = job_log_dir / "search.toml";
    write_file_atomically(
        file, set_file_text(settings_of(result.candidates[*result.best].candidate, style),
                            heading_of_file(result, options, command, file)));
    return shell_quoted(file.string());
  }
};

}  // namespace

std::unique_ptr<Command> search_command() { return command_of<Search>(); }

}  // namespace tessera
