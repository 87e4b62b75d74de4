// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/modes/make_run.h"

#include "tasks/run/directory/run_directory.h"

namespace tessera {
namespace {

using MakeRun = std::function<std::unique_ptr<BaseRun>(const RunSetting&)>;

class DryRun final : public BaseRun {
 public:
  DryRun(RunSetting setting, ProcessGroup& processes, const MakeRun& make)
      // With --restart the run would not see what is in its directory.
      : scratch_(setting.restart ? "" : setting.job_log_dir, processes) {
    setting.input_directory = scratch_.path();
    run_ = make(setting);
  }
  int run() override { return run_->run(); }

 private:
  ScratchDirectory scratch_;
  std::unique_ptr<BaseRun> run_;
};

}  // namespace

std::unique_ptr<BaseRun> make_run(const RunSetting& setting, ProcessGroup& processes,
                                  const MakeRun& make) {
  if (setting.dry_run) return std::make_unique<DryRun>(setting, processes, make);
  RunSetting in_place = setting;
  in_place.input_directory = setting.job_log_dir;
  return make(in_place);
}

}  // namespace tessera
