// SPDX-License-Identifier: Apache-2.0
// Builds that are killed at any moment, or run out of room on the disk: the same command goes on
// and ends with the same bytes, and what was there before is never damaged. And how much memory is
// used.
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "core/base/error.h"
#include "inputs/building/token_build.h"
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

// In a process of its own; what waitpid says of it goes to `status`.
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
      // Either the old file or, if it was killed after that, the new one.
      const std::string there = read_bytes(output);
      REQUIRE((there == "what was here before" || there == whole));
    }
    REQUIRE((read_bytes(output) == whole));
    // What killed processes left is gone: the corpus and two files are all there is.
    REQUIRE(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()) == 3);
  }
}

TEST_CASE("a build killed at any moment goes on, and ends with the same bytes") {
  kill_until_done(4);
}

TEST_CASE("builds killed at a hundred moments end with the same bytes", "[full]") {
  kill_until_done(100);
}

TEST_CASE("a full disk is reported and damages nothing; with more room the command goes on") {
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
  // First there is no room for the parts, then none to put them together.
  const TokenBuild build = build_of(directory / "corpus", disk / "t.h5", *tokenizer);
  for (const char* size : {"size=300k", "size=600k", "size=900k", "size=1500k"}) {
    CAPTURE(size);
    REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, size) == 0);
    REQUIRE_THROWS_WITH(run(build), Contains("No space left on device") &&
                                        Contains("the same command goes on from there"));
    REQUIRE(read_bytes(disk / "t.h5") == "what was here before");
  }
  REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=20m") == 0);
  run(build);
  REQUIRE((read_bytes(disk / "t.h5") == whole));
  REQUIRE(std::distance(fs::directory_iterator(disk), fs::directory_iterator()) == 1);
  ::umount2(disk.c_str(), MNT_DETACH);
}

// Bytes that /proc/self/status tells under this name.
int64_t memory(const std::string& name) {
  const std::string status = read_bytes("/proc/self/status");
  return std::stoll(status.substr(status.find(name + ":") + name.size() + 1)) * 1024;
}

// Runs the build in a process of its own, and returns by how much its memory grew at most.
int64_t growth_of(const TokenBuild& build, const fs::path& result) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    try {
      std::ofstream("/proc/self/clear_refs") << "5";  // The peak begins anew.
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
    // Batches wait while the disk is synced, which a small corpus would not see with 256 MiB.
    build.checkpoint_bytes = 8 << 20;
    return growth_of(build, directory / "growth");
  };
  const int64_t small = peak(3);   // 48 MB of text,
  const int64_t large = peak(12);  // and 192 MB.
  UNSCOPED_INFO("small " << small << ", large " << large);
  REQUIRE(large < small + (24 << 20));
  // At most nine batches for three threads wait, of a MiB of text or two MiB of ids each, and each
  // thread has buffers of its own: this holds however long the disk takes.
  REQUIRE(large < 48 << 20);
}

}  // namespace
}  // namespace tessera
