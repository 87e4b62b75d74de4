// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/trackers/exec_tracker.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "core/io/json.h"

namespace tessera {
namespace {

constexpr int kPollMilliseconds = 50;

std::string run_line(const TrackedRun& run) {
  JsonLine config;
  for (const auto& [path, value] : run.config) config.add(path, std::string_view(value));
  return json_object({{"record", "run"},
                      {"id", run.id},
                      {"name", run.name},
                      {"directory", run.directory.string()},
                      {"step", run.step},
                      {"tags", RawJson{json_list(run.tags, json_quoted)}},
                      {"config", RawJson{config.text()}}});
}

}  // namespace

PipedProgram::PipedProgram(const std::vector<std::string>& arguments,
                           const std::filesystem::path& output, const BaseTracker& tracker)
    : tracker_(tracker), output_(output) {
  int ends[2] = {-1, -1};
  const FileDescriptor log = open_own_file(output);
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  const FileDescriptor read_end(ends[0]);
  input_ = FileDescriptor(ends[1]);
  ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  try {
    child_ = std::make_unique<ChildProcess>(arguments, log.get(), read_end.get());
  } catch (const Error& error) {
    throw TrackerRefused(error.what());
  }
}

PipedProgram::~PipedProgram() {
  input_ = FileDescriptor();
  child_->ask_to_stop();
}

void PipedProgram::fail_ended() {
  const auto status = child_->wait(std::chrono::steady_clock::now() + std::chrono::seconds(1));
  throw TrackerRefused(
      fmt::format("the program ended {}; {} has what it printed",
                  status && *status >= 0 ? fmt::format("with exit code {}", *status) : "early",
                  output_.string()));
}

void PipedProgram::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(input_.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      if (tracker_.is_abandoned()) fail("the program does not read its input");
      pollfd descriptor{.fd = input_.get(), .events = POLLOUT, .revents = 0};
      ::poll(&descriptor, 1, kPollMilliseconds);
    } else if (errno != EINTR) {
      fail_ended();
    }
  }
}

void PipedProgram::finish() {
  input_ = FileDescriptor();
  while (!tracker_.is_abandoned()) {
    const auto status = child_->wait(std::chrono::steady_clock::now() +
                                     std::chrono::milliseconds(kPollMilliseconds));
    if (status && *status != 0) fail_ended();
    if (status) return;
  }
}

void ExecTracker::start(const TrackedRun& run) {
  program_ = std::make_unique<PipedProgram>(arguments_, run.file("log"), *this);
  program_->send(run_line(run) + "\n");
}

void ExecTracker::write(const std::vector<TrackerRecord>& records) {
  for (const TrackerRecord& record : records) program_->send(record.lines);
}

void ExecTracker::finish(const TrackerRecord& end) {
  program_->send(end.lines);
  program_->finish();
}

WandbTracker::WandbTracker(const HParams& p) : ExecTracker(std::vector<std::string>()) {
  const char* const chosen = std::getenv("TESSERA_PYTHON");
  const std::string python = !p.python.empty() ? p.python : chosen != nullptr ? chosen : "python3";
  bridge_ = {python,      "-c",      std::string(wandb_files().at("tessera_wandb.py")),
             "--project", p.project, "--records"};
  if (!p.entity.empty()) bridge_.insert(bridge_.end(), {"--entity", p.entity});
}

void WandbTracker::start(const TrackedRun& run) {
  arguments_ = bridge_;
  arguments_.push_back(run.directory.string());
  ExecTracker::start(run);
}

void NotifyCommand::write(const std::vector<TrackerRecord>& records) {
  for (const TrackerRecord& record : records) {
    const std::string& event = record.name;
    if (record.kind != TrackerRecord::Kind::kEvent) continue;
    if (event != "start" && event != "failed" && event != "done" && event != "preempt") continue;
    PipedProgram program({"/bin/sh", "-c", command_}, run_.file("log"), *this);
    const std::string about =
        json_object({{"name", run_.name}, {"id", run_.id}, {"directory", run_.directory.string()}});
    const size_t brace = record.lines.rfind('}');
    const std::string line = record.lines.substr(0, brace) + ", " + about.substr(1) + "\n";
    try {
      program.send(line);
    } catch (const TrackerRefused&) {  // It need not read its input; its exit code counts.
    }
    program.finish();
  }
}

REGISTER_TEMPLATE(BaseTracker, ExecTracker);
REGISTER_TEMPLATE(BaseTracker, WandbTracker);

}  // namespace tessera
