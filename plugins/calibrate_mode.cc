// SPDX-License-Identifier: Apache-2.0
#include "plugins/calibrate_mode.h"

#include <fmt/ostream.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/base/shell_command.h"
#include "tasks/calibrate/calibrate.h"

namespace tessera {

void run_calibration(const CommandLine& line, std::ostream& out) {
  constexpr const char* kCpu = "cpu";
  if (line.device != kCpu)
    fail(
        "--device={}: --mode=calibrate measures the CPU device only; for another one copy the "
        "file of hardware/ that is most like it (docs/hardware.md)",
        line.device);
  CalibrateOptions options{.devices = line.run.devices,
                           .threads = line.threads > 0 ? line.threads : usable_processors(),
                           .size = line.smoke ? CalibrationSize::kQuick : CalibrationSize::kFull,
                           .output = line.run.output,
                           .replaces = line.run.restart,
                           .report = [&out](const std::string& text) { out << text << std::endl; }};
  if (options.devices > options.threads)
    fail("--devices={}: expected at most {}, one for each thread (--threads)", options.devices,
         options.threads);
  if (options.output.empty()) options.output = line.run.job_log_dir / "cpu.toml";
  calibrate(options);
  const std::string name = options.output.string();
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml");
  fmt::print(out, "\nwrote {}; predict steps on this machine with --mode=plan --hardware={}\n",
             name, shell_quoted(is_path ? name : "./" + name));
}

}  // namespace tessera
