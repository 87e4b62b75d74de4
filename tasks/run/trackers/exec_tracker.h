// SPDX-License-Identifier: Apache-2.0
// Trackers that are programs: `exec`, a command of the user's that reads JSON lines; `wandb`, a
// process with the SDK of Weights & Biases; and the notification command of a run.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/process.h"
#include "core/hparams/fields.h"
#include "core/io/file.h"
#include "tasks/task/base_tracker.h"

namespace tessera {

// The program of the tracker `wandb`: the file of plugins/wandb (cmake/EmbedFiles.cmake).
std::map<std::string_view, std::string_view> wandb_files();

// A program that gets text on its standard input; what it prints goes to a file.
class PipedProgram {
 public:
  // TrackerRefused if it cannot be started.
  PipedProgram(const std::vector<std::string>& arguments, const std::filesystem::path& output,
               const BaseTracker& tracker);
  ~PipedProgram();
  PipedProgram& operator=(PipedProgram&&) = delete;  // Neither copied nor moved.

  // Waits while the pipe is full. Error once the tracker is abandoned, TrackerRefused once the
  // program has ended.
  void send(std::string_view text);
  // Ends its input and waits for its end. TrackerRefused if it fails.
  void finish();

 private:
  [[noreturn]] void fail_ended();

  const BaseTracker& tracker_;
  std::filesystem::path output_;
  FileDescriptor input_;
  std::unique_ptr<ChildProcess> child_;
};

class ExecTracker : public BaseTracker {
 public:
  struct HParams {
    using Instance = ExecTracker;
    static constexpr std::string_view kName = "exec";
    Required<std::string> command;
    FIELDS(About(command, "a shell command that reads JSON lines from its standard input"))
  };
  explicit ExecTracker(const HParams& p) : arguments_{"/bin/sh", "-c", p.command.get()} {}

  void start(const TrackedRun& run) override;
  void write(const std::vector<TrackerRecord>& records) override;
  void finish(const TrackerRecord& end) override;

 protected:
  explicit ExecTracker(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  std::vector<std::string> arguments_;

 private:
  std::unique_ptr<PipedProgram> program_;
};

class WandbTracker final : public ExecTracker {
 public:
  struct HParams {
    using Instance = WandbTracker;
    static constexpr std::string_view kName = "wandb";
    std::string project = "tessera";
    std::string entity;
    std::string python;
    FIELDS(project, About(entity, "user or team; empty: the account's own"),
           About(python, "a Python that has wandb; empty: $TESSERA_PYTHON, or python3"))
  };
  explicit WandbTracker(const HParams& p);

  void start(const TrackedRun& run) override;

 private:
  std::vector<std::string> bridge_;
};

// Runs a shell command at start, failure and end, each time with one JSON object as its input.
class NotifyCommand final : public BaseTracker {
 public:
  explicit NotifyCommand(std::string command) : command_(std::move(command)) {}
  void start(const TrackedRun& run) override { run_ = run; }
  void write(const std::vector<TrackerRecord>& records) override;
  void finish(const TrackerRecord& end) override { write({end}); }

 private:
  std::string command_;
  TrackedRun run_;
};

extern template class HolderOf<BaseTracker, ExecTracker::HParams>;
extern template class HolderOf<BaseTracker, WandbTracker::HParams>;

}  // namespace tessera
