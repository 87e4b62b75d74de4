// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/other_side.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using SideKind = OtherSideChoice::Kind;

struct SideWord {
  std::string word, value;  // "threads", "N".
  SideKind kind;
};
const std::vector<SideWord>& side_words() {
  static const std::vector<SideWord> words = {{"threads", "N", SideKind::kThreads},
                                              {"device", "KIND", SideKind::kDevice},
                                              {"cpu_level", "LEVEL", SideKind::kCpuLevel},
                                              {"build", "RUNEXP", SideKind::kBuild},
                                              {"mesh", "SHAPE", SideKind::kMesh}};
  return words;
}

// A second process and the reading end of its pipe.
class OtherProcess {
 public:
  OtherProcess(const std::vector<std::string>& command, const std::string& environment) {
    const fs::path pipe = folder_.path() / "recording";
    if (::mkfifo(pipe.c_str(), 0600) != 0)
      fail("cannot create {}: {}", pipe.string(), std::strerror(errno));
    pipe_ = FileDescriptor(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!pipe_.is_open()) fail("cannot open a pipe: {}", std::strerror(errno));
    // The shell keeps standard error, which ChildProcess would drop.
    std::vector<std::string> words = {"sh", "-c", "exec \"$@\" 2>\"$0\"", errors_.string(), "env"};
    if (!environment.empty()) words.push_back(environment);
    words.insert(words.end(), command.begin(), command.end());
    words.push_back("--record=" + pipe.string());
    child_ = std::make_unique<ChildProcess>(words);
  }

  // Waits for bytes. A reader that needs bytes after the process has ended lacks some.
  size_t read_some(std::span<std::byte> bytes) {
    while (true) {
      const bool has_ended = child_->wait(std::chrono::steady_clock::now()).has_value();
      const ssize_t count = ::read(pipe_.get(), bytes.data(), bytes.size());
      if (count > 0) return static_cast<size_t>(count);
      if (count < 0 && errno != EAGAIN && errno != EINTR)
        fail("cannot read from the other side: {}", std::strerror(errno));
      if (has_ended) fail_ended();
      pollfd waited{pipe_.get(), POLLIN, 0};
      // Without a writer poll() returns at once.
      if (::poll(&waited, 1, 50) > 0 && (waited.revents & POLLIN) == 0) ::usleep(5000);
    }
  }

 private:
  [[noreturn]] void fail_ended() {
    const int code = child_->wait(std::chrono::steady_clock::now()).value_or(-1);
    std::string text = fs::exists(errors_) ? read_file(errors_) : "";
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t line = text.rfind('\n');
    if (line != std::string::npos) text = text.substr(line + 1);
    fail("the other side ended before the end of the step: {}",
         !text.empty() ? text
         : code < 0    ? std::string("a signal ended it")
                       : fmt::format("exit code {}", code));
  }

  const ScratchDirectory folder_{"tessera_replay"};
  const fs::path errors_ = folder_.path() / "errors";  // Its standard error.
  FileDescriptor pipe_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace

OtherSideChoice parse_other_side(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  std::vector<std::string> words, forms;
  for (const SideWord& each : side_words()) {
    if (word == each.word && colon != std::string::npos && colon + 1 < text.size())
      return {each.kind, text.substr(colon + 1)};
    words.push_back(each.word);
    forms.push_back(each.word + ":" + each.value);
  }
  if (!text.empty() && std::filesystem::exists(text)) return {SideKind::kRecording, text};
  if (colon != std::string::npos || text.empty())
    fail("--against={}: expected {} or a recording{}", text, fmt::join(forms, ", "),
         did_you_mean(word, words));
  fail("--against={}: no such file; expected a recording that --record has written, or {}", text,
       fmt::join(forms, ", "));
}

LaunchRecord OtherSide::take(int64_t device, int64_t launch) {
  const std::lock_guard lock(mutex_);
  if (auto found = early_.extract({device, launch})) return std::move(found.mapped());
  LaunchRecord record;
  while (!ended_) {
    if (!reader_->next(record)) {
      ended_ = true;
    } else if (record.device == device && record.launch == launch) {
      return record;
    } else {
      const std::pair key(record.device, record.launch);
      early_.insert_or_assign(key, std::move(record));
    }
  }
  fail("{} has no launch {} of device {}; record it again", where(), launch, device);
}

RecordingEnd OtherSide::end() {
  const std::lock_guard lock(mutex_);
  LaunchRecord unused;
  while (!ended_) ended_ = !reader_->next(unused);
  return reader_->end();
}

std::unique_ptr<OtherSide> start_other_side(std::vector<std::string> command,
                                            const std::string& environment) {
  auto process = std::make_shared<OtherProcess>(command, environment);
  return std::make_unique<OtherSide>(std::make_unique<RecordingReader>(
      [process](std::span<std::byte> bytes) { return process->read_some(bytes); },
      "the other side"));
}

}  // namespace tessera
