// SPDX-License-Identifier: Apache-2.0
// The other side of a comparison: the launches of a recording, which is a file or what a second
// process writes while it runs the same step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tasks/replay/recording.h"

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
// of a recording. Error for any other word before the colon, unless the text is the path of a file
// that exists.
OtherSideChoice parse_other_side(const std::string& text);

class OtherSide {
 public:
  explicit OtherSide(std::unique_ptr<RecordingReader> reader) : reader_(std::move(reader)) {}
  virtual ~OtherSide() = default;

  const RecordingHeader& header() const { return reader_->header(); }
  const std::string& where() const { return reader_->where(); }
  // Waits until the other side has done this launch. Any thread; each launch is taken once. Error
  // if the recording ends without it.
  LaunchRecord take(int64_t device, int64_t launch);
  // The results of the step, when all launches were taken.
  RecordingEnd end();

 private:
  std::mutex mutex_;
  std::unique_ptr<RecordingReader> reader_;
  // Launches that were read before they were asked for: devices are not in step with each other.
  std::map<std::pair<int64_t, int64_t>, LaunchRecord> early_;
  bool ended_ = false;
};

// Starts `command`, with --record=FILE appended, and waits for the first line of its recording.
// `environment` ("NAME=VALUE") may be empty. The process is killed with the result. Error with the
// last line of its standard error if it ends early.
std::unique_ptr<OtherSide> start_other_side(std::vector<std::string> command,
                                            const std::string& environment);

}  // namespace tessera
