// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/flag_groups.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/hparams/convert.h"
#include "plugins/loader.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

void ExperimentFlags::check() const {
  if (!exp.empty() && !config.empty())
    fail("--exp and --config both name an experiment: give one of them");
  if (!config.empty() && smoke)
    fail("--smoke changes the knobs of an experiment, and --config has none: use --exp");
  if (exp.empty() && config.empty())
    fail(
        "no experiment is given: use --exp=FAMILY.Name; --list shows the experiments, --help the "
        "flags");
}

std::vector<std::string> ExperimentFlags::sets() const {
  std::vector<std::string> sets;
  for (const std::filesystem::path& file : set_file)
    for (std::string& each : read_set_file(file)) sets.push_back(std::move(each));
  sets.insert(sets.end(), set.begin(), set.end());
  return sets;
}

std::vector<std::filesystem::path> PluginFlags::folders() const {
  return tessera::plugin_path(plugin_path);
}

// More threads than processors only wait for each other; a much larger number is a mistake.
void KindFlags::check() const {
  constexpr int64_t kMostThreads = 256;  // Most threads of a process on a small machine.
  const int processors = usable_processors();
  const int64_t most = std::max<int64_t>(kMostThreads, 4 * int64_t{processors});
  if (threads.value_or(0) > most)
    fail("--threads={}: expected at most {}; this process may use {} processor{}", *threads, most,
         processors, processors == 1 ? "" : "s");
}

void DeviceFlags::check() const {
  constexpr int64_t kMostDevices = 1024;  // Each takes a thread or two.
  kind.check();
  if (count() > kMostDevices)
    fail("--devices={}: a process drives at most {}; start more processes (mpirun, Slurm)", count(),
         kMostDevices);
}

std::optional<ProfileWindow> TrainFlags::profile_window() const {
  if (profile.empty() || profile == "off") return std::nullopt;
  const size_t colon = profile.find(':');
  if (colon == std::string::npos)
    fail("--profile={}: expected START:N, such as 10:3, or off", profile);
  return ProfileWindow{whole_number("profile", profile.substr(0, colon), 0),
                       whole_number("profile", profile.substr(colon + 1), 1)};
}

void TrainFlags::check() const {
  flags.check();
  profile_window();
  if (!checkpoint.empty() && checkpoint != "auto-fallback")
    fail(
        "--checkpoint={}: --mode=train takes only auto-fallback; others need --mode=eval, decode, "
        "export or replay",
        checkpoint);
}

void FormatFlags::check() const {
  if (format != "hf")
    fail("--format={}: expected hf, the only format of export and import", format);
}

int64_t whole_number(std::string_view flag, std::string_view text, int64_t least) {
  const std::optional<int64_t> value = parse_integer(text);
  if (!value || *value < least)
    fail("--{}={}: expected a whole number, {} or more", flag, text, least);
  return *value;
}

CheckpointChoice parse_checkpoint(const std::string& given, CheckpointCount count) {
  using Kind = CheckpointChoice::Kind;
  constexpr std::string_view kPrefix = "step_";
  const bool several = given == "all" || given == "follow";
  if (given == "newest") return {};
  if (given == "auto-fallback")
    fail("--checkpoint=auto-fallback needs --mode=train; give newest or a step's number");
  if (several && count == CheckpointCount::kOne)
    fail(
        "--checkpoint=all and follow need --mode=eval, decode or score; give newest or a step's "
        "number");
  if (several) return {given == "all" ? Kind::kAll : Kind::kFollow};
  const std::string text = given.starts_with(kPrefix) ? given.substr(kPrefix.size()) : given;
  std::vector<std::string> names = {"newest"};
  if (count == CheckpointCount::kSeveral) names.insert(names.end(), {"all", "follow"});
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    fail("--checkpoint={}: expected {} or a step's number{}", given, fmt::join(names, ", "),
         did_you_mean(text, names));
  return {Kind::kStep, whole_number("checkpoint", text, 0)};
}

Hardware hardware_of(const std::string& given) {
  return find_hardware(given, own_plugins("hardware"));
}

Hardware required_hardware(const std::string& given, std::string_view reason) {
  if (!given.empty()) return hardware_of(given);
  fail("{}: give --hardware=NAME, one of {}, or a file (docs/hardware.md)", reason,
       fmt::join(hardware_names(own_plugins("hardware")), ", "));
}

}  // namespace tessera
