// SPDX-License-Identifier: Apache-2.0
#include "plugins/search_mode.h"

#include <filesystem>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/region.h"
#include "core/base/shell_command.h"
#include "core/io/file.h"
#include "tasks/config/set_file.h"
#include "tasks/search/nearest_mesh.h"
#include "tasks/search/output.h"

namespace tessera {
namespace {

// Without --search: a training run of what the user gave.
std::string training_command(const ConfiguredExperiment& configured, const CommandLine& line) {
  std::string command = line.config.empty()
                            ? "./runexp --exp=" + shell_quoted(configured.entry.name)
                            : "./runexp --config=" + shell_quoted(line.config.string());
  for (const std::string& set : line.sets) command += " --set " + shell_quoted(set);
  return command;
}

std::string heading_of_file(const SearchResult& result, const SearchOptions& options,
                            const std::string& command, const std::filesystem::path& file) {
  const Searched& best = result.best_candidate();
  return fmt::format(
      "The best for {} on {} devices like {}, found by --search:\n{}\n{:.6g} s a step, {} bytes on "
      "each device.\n{} --set_file={}",
      enum_name(options.goal), best.devices(), options.hardware.title, best.candidate.text(),
      best.seconds, best.bytes, command, shell_quoted(file.string()));
}

}  // namespace

void run_search(const ConfiguredExperiment& configured, const CommandLine& line,
                SearchOptions options, std::ostream& out) {
  const std::filesystem::path& folder = line.run.job_log_dir;
  options.run_directory = folder;
  const SettingStyle style =
      configured.config_file.empty() ? SettingStyle::kKnobs : SettingStyle::kFields;
  const Configure with_settings = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> all = line.sets;
    all.insert(all.end(), sets.begin(), sets.end());
    return configured.config_file.empty()
               ? configure(configured.entry, all).config
               : configure(configured.entry, read_config(line.config), all).config;
  };
  const SearchResult result = search(with_settings, style, line.run.devices, options);
  SearchTexts texts{.experiment = configured.entry.name,
                    .command = training_command(configured, line)};
  if (!folder.empty()) {
    std::filesystem::create_directories(folder);
    write_file_atomically(folder / "search.json", search_json(result, options, style) + "\n");
    write_file_atomically(folder / "search.svg", search_svg(result, options));
  }
  if (!folder.empty() && result.best) {
    const std::filesystem::path file = folder / "search.toml";
    write_file_atomically(
        file, set_file_text(settings_of(result.candidates[*result.best].candidate, style),
                            heading_of_file(result, options, texts.command, file)));
    texts.set_file = shell_quoted(file.string());
  }
  out << search_text(result, options, style, texts);
  if (!result.best) fail("{}", nothing_fits(result, options));
}

std::string fitting_mesh_advice(const ConfiguredExperiment& configured, int64_t devices) {
  const auto shape = nearest_fitting_shape(configured.config, devices);
  if (!shape) return "";
  const int64_t all = element_count(*shape) * element_count(configured.config.mesh.dcn_mesh_shape);
  return fmt::format(
      "; the nearest mesh of {} devices that fits is --set mesh.ici_mesh_shape=[{}], and "
      "--mode=plan --search --devices={} --hardware=NAME finds the best one",
      all, fmt::join(*shape, ","), all);
}

}  // namespace tessera
