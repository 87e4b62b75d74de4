// SPDX-License-Identifier: Apache-2.0
// --diff: how an experiment differs from another, or from a run. It takes all flags of a training
// run, to whose command it may be added.
#include <filesystem>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run_directory/run_config.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Diff {
  static constexpr CommandInfo kInfo{
      .flag = "diff", .summary = "print how it differs from another experiment, or from a run"};
  fs::path diff;
  TrainFlags train;
  FIELDS(About(diff,
               "another experiment, a run's directory or its hparams.toml; the other flags are "
               "those of --mode=train",
               {.unit = "OTHER"}),
         train)

  void check() const { train.check(); }

  CommandResult run(const CommandContext& context) const {
    const ConfiguredExperiment configured = configured_together(train.flags.experiment, context);
    const std::vector<std::string> lines = tessera::diff(configured.config_tree(), other_tree());
    for (const std::string& difference : lines) fmt::print(context.out, "{}\n", difference);
    if (lines.empty())
      fmt::print(context.out, "{} and {} have the same configuration\n", configured.entry.name,
                 diff.string());
    return check_printed();
  }

 private:
  // Reads the configuration of another experiment, or the one in a run's directory.
  Tree other_tree() const {
    const std::string other = diff.string();
    fs::path file = diff;
    if (fs::is_directory(file)) {
      file /= "hparams.toml";
      if (!fs::exists(file)) fail("--diff={}: the folder has no hparams.toml", other);
    }
    if (fs::is_regular_file(file))
      return to_tree(with_all_evals(parse_config(read_file(file), file.string())));
    const bool is_path = file.has_parent_path() || file.extension() == ".toml";
    if (is_path || fs::exists(file))
      fail("--diff={}: {}; expected a run's directory, its hparams.toml, or an experiment", other,
           fs::exists(file) ? "is not a file or a directory" : "no such file or directory");
    const ExperimentEntry entry = find_experiment(other, train.flags.experiment.plugins.folders());
    return to_tree(configure(entry, {}).config);
  }
};

}  // namespace

std::unique_ptr<Command> diff_command() { return command_of<Diff>(); }

}  // namespace tessera
