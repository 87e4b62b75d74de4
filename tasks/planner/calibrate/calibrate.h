// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate: measures the CPU device on this machine with its own kernels and writes the
// rates as a hardware file, from which --mode=plan predicts steps (docs/hardware.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tasks/planner/calibrate/calibration_cases.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

struct CalibrateOptions {
  // Devices that compute at the same time, as the devices of a process do, and their threads
  // together.
  int64_t devices = 1;
  int threads = 1;
  CalibrationSize size = CalibrationSize::kFull;
  std::filesystem::path output;                         // The file to write.
  bool replaces = false;                                // An existing file.
  std::function<void(const std::string& line)> report;  // Called with each line of the table.
};

// Error if the file exists and is not to be replaced, or cannot be written, before anything is
// measured.
void check_output(const CalibrateOptions& options);

// Measures, writes the file and returns its content.
Hardware calibrate(const CalibrateOptions& options);

}  // namespace tessera
