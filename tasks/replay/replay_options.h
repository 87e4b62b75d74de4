// SPDX-License-Identifier: Apache-2.0
// The options of --mode=replay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tasks/replay/recording.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// What a step is compared with: a recording, or a second process with one other setting.
struct OtherSideChoice {
  enum class Kind {
    kNone,
    kRecording,  // A file that --record has written.
    kThreads,    // --threads=N.
    kDevice,     // --device=KIND.
    kCpuLevel,   // TESSERA_CPU_LEVEL.
    kBuild,      // Another build's program runexp.
    kMesh,       // mesh.ici_mesh_shape, with so many devices.
  };
  Kind kind = Kind::kNone;
  std::string value;  // "1", "reference", "portable", "[1,4,1]", or a path.
};

// "threads:1", "device:reference", "cpu_level:portable", "build:PATH", "mesh:[1,4,1]" or the path
// of a recording. Error if the text before the colon is none of these words and no such file
// exists.
OtherSideChoice parse_other_side(const std::string& text);

// What each launch reads in a comparison.
enum class LaunchInputs {
  kOwn,    // What the launches before it have written.
  kOther,  // What it read on the other side: each launch is compared on its own.
};

struct ReplayOptions {
  int64_t step = 0;             // Numbered as in metrics.jsonl: the first step of a run is 1.
  CheckpointChoice checkpoint;  // A step: where to begin.
  OtherSideChoice against;
  double tolerance = 0;  // The tolerance of array_difference().
  LaunchInputs inputs = LaunchInputs::kOwn;
  std::filesystem::path record;  // Where to write a recording; or empty.
  RecordedValues values = RecordedValues::kNone;
  std::string kernels_of;        // Another kind of device; or "".
  bool finds_nonfinite = false;  // Find the first value that is not finite; compare nothing.
};

}  // namespace tessera
