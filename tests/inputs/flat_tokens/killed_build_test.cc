// SPDX-License-Identifier: Apache-2.0
// Builds that are killed at random moments or run out of disk space: the same command resumes and
// produces the same bytes, and existing files are not damaged. Also tests memory use.
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "core/base/error.h"
#include "inputs/flat_tokens/token_build.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

void write_corpus(const fs::path& folder) {
  for (int file = 0; file < 6; ++file) {
    std::string lines;
    for (int i = 0; i < 400; ++i)
      lines += fmt::format("{{\"text\": \"{} {} {}\"}}\n", file, i,
                           std::string(static_cast<size_t>(i * 31 % 300), 'y'));
    const bool is_packed = file % 2 == 1;
    write_bytes(folder / fmt::format("{}.jsonl{}", file, is_packed ? ".gz" : ""),
                is_packed ? gzip(lines) : lines);
  }
}

TokenBuild build_of(const fs::path& corpus, const fs::path& output, const Tokenizer& tokenizer) {
  TokenBuild build;
  build.output = output;
  build.tokenizer = &tokenizer;
  build.identity = identity_of(tokenizer);
  build.from = find_build_inputs({corpus.string()}, {});
  build.threads = 3;
  build.unit_bytes = 100000;
  build.batch_bytes = 3000;
  build.checkpoint_bytes = 30000;
  return build;
}

void run(const TokenBuild& build) {
  std::ostringstream said;
  BuildProgress progress(said, BuildProgress::Mode::kSilent);
  build_tokens(build, progress);
}

// Builds in a child process; `status` is the result of waitpid.
pid_t start(const TokenBuild& build) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid != 0) return pid;
  try {
    run(build);
    ::_exit(0);
  } catch (...) {
    ::_exit(1);
  }
}

void kill_until_done(int least_kills) {
  const TemporaryDirectory directory;
  const auto tokenizer = make_tokenizer("bytes");
  write_corpus(directory / "corpus");
  run(build_of(directory / "corpus", directory / "whole.h5", *tokenizer));
  const std::string whole = read_bytes(directory / "whole.h5");
  std::mt19937 random(1);
  for (int kills = 0; kills < least_kills;) {
    const fs::path output = directory / "t.h5";
    write_bytes(output, "what was here before");
    for (bool is_done = false; !is_done;) {
      const pid_t pid = start(build_of(directory / "corpus", output, *tokenizer));
      ::usleep(random() % 60000);
      ::kill(pid, SIGKILL);
      int status = 0;
      REQUIRE(::waitpid(pid, &status, 0) == pid);
      is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      REQUIRE((is_done || WIFSIGNALED(status)));
      if (is_done) break;
      ++kills;
      // Either the old file or, if it was killed after the rename, the new one.
      const std::string there = read_bytes(output);
      REQUIRE((there == "what was here before" || there == whole));
    }
    REQUIRE((read_bytes(output) == whole));
    // Only the corpus and two files are left.
    REQUIRE(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()) == 3);
  }
}

TEST_CASE("a killed build resumes and ends with the same bytes") { kill_until_done(4); }

TEST_CASE("builds killed at a hundred moments end with the same bytes", "[full]") {
  kill_until_done(100);
}

TEST_CASE("a full disk is reported and damages nothing; with more space the command resumes") {
  const TemporaryDirectory directory;
  const fs::path disk = directory / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    WARN("skipped: may not mount a small tmpfs: " << std::strerror(errno));
    return;
  }
  const auto tokenizer = make_tokenizer("bytes");
  write_corpus(directory / "corpus");
  run(build_of(directory / "corpus", directory / "whole.h5", *tokenizer));
  const std::string whole = read_bytes(directory / "whole.h5");
  write_bytes(disk / "t.h5", "what was here before");
  // First too little space for the parts, then for the output.
  const TokenBuild build = build_of(directory / "corpus", disk / "t.h5", *tokenizer);
  for (const char* size : {"size=300k", "size=600k", "size=900k", "size=1500k"}) {
    CAPTURE(size);
    REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, size) == 0);
    REQUIRE_THROWS_WITH(
        run(build), Contains("No space left on device") && Contains("the same command resumes it"));
    REQUIRE(read_bytes(disk / "t.h5") == "what was here before");
  }
  REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=20m") == 0);
  run(build);
  REQUIRE((read_bytes(disk / "t.h5") == whole));
  REQUIRE(std::distance(fs::directory_iterator(disk), fs::directory_iterator()) == 1);
  ::umount2(disk.c_str(), MNT_DETACH);
}

// The value of a field of /proc/self/status in bytes.
int64_t memory(const std::string& name) {
  const std::string status = read_bytes("/proc/self/status");
  return std::stoll(status.substr(status.find(name + ":") + name.size() + 1)) * 1024;
}

// Runs the build in a child process and returns its peak memory growth.
int64_t growth_of(const TokenBuild& build, const fs::path& result) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    try {
      std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak.
      const int64_t before = memory("VmRSS");
      run(build);
      write_bytes(result, std::to_string(memory("VmHWM") - before));
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(status == 0);
  return std::stoll(read_bytes(result));
}

TEST_CASE("memory does not grow with the corpus", "[full]") {
  const TemporaryDirectory directory;
  const auto tokenizer = make_tokenizer("bytes");
  std::string lines;
  for (int i = 0; i < 4000; ++i)
    lines += fmt::format("{{\"text\": \"{}{}\"}}\n", i, std::string(4000, 'z'));
  const std::string member = gzip(lines);
  const auto peak = [&](int members) {
    std::string file;
    for (int i = 0; i < members; ++i) file += member;
    write_bytes(directory / "corpus/a.jsonl.gz", file);
    TokenBuild build = build_of(directory / "corpus", directory / "t.h5", *tokenizer);
    build.batch_bytes = TokenBuild().batch_bytes;
    // Frequent syncs make batches wait; with 256 MiB a small corpus would not sync.
    build.checkpoint_bytes = 8 << 20;
    return growth_of(build, directory / "growth");
  };
  const int64_t small = peak(3);   // 48 MB of text,
  const int64_t large = peak(12);  // and 192 MB.
  UNSCOPED_INFO("small " << small << ", large " << large);
  REQUIRE(large < small + (24 << 20));
  // At most nine batches wait for three threads, each of 512 KiB of text or 2 MiB of ids, and each
  // thread has its own buffers. This bound does not depend on disk speed.
  REQUIRE(large < 48 << 20);
}

}  // namespace
}  // namespace tessera
