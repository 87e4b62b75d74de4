// SPDX-License-Identifier: Apache-2.0
#include "core/io/file.h"

#include <sys/stat.h>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("a file is replaced whole, with nothing left beside it") {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "f", "one");
  write_file_atomically(directory / "f", "second");
  REQUIRE(read_file(directory / "f") == "second");
  REQUIRE(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a file that cannot be replaced stays, and the reason is said") {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "f/occupied");
  REQUIRE_THROWS(write_file_atomically(directory / "f", "text"));
  REQUIRE(fs::exists(directory / "f/occupied"));
  REQUIRE(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
  REQUIRE_THROWS_WITH(write_file_atomically(directory / "none/f", "text"),
                      Contains("No such file"));
  REQUIRE_THROWS_WITH(read_file(directory / "none"), Contains("cannot open"));
}

TEST_CASE("only regular files of a bounded size are read") {
  const TemporaryDirectory directory;
  const fs::path fifo = directory / "fifo", link = directory / "link";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_symlink(fifo, link);
  write_bytes(directory / "f", "12345");
  for (const auto& [path, kind] : {std::pair<fs::path, std::string>{fifo, "a FIFO"},
                                   {link, "a FIFO"},
                                   {directory.path(), "a directory"},
                                   {"/dev/zero", "a device"}}) {
    const std::string message = "expected a regular file, got " + kind;
    CHECK_THROWS_WITH(read_file(path), Contains(message));
    CHECK_THROWS_WITH(require_regular_file(path), Contains(message));
  }
  REQUIRE_THROWS_WITH(write_file_atomically(fifo, "text"), Contains("got a FIFO"));
  REQUIRE(fs::is_fifo(fifo));
  REQUIRE(read_file(directory / "f", 5) == "12345");
  REQUIRE_THROWS_WITH(read_file(directory / "f", 4), Contains("larger than the limit of 4 bytes"));
  REQUIRE_NOTHROW(require_regular_file(directory / "f"));
  REQUIRE(read_file("/proc/self/status").starts_with("Name:"));  // Its size reads as 0.
}

TEST_CASE("what is planted under a temporary name is not written through") {
  const TemporaryDirectory directory;
  write_bytes(directory / "precious", "precious");
  fs::create_symlink(directory / "precious", temporary_beside(directory / "f", "new"));
  write_file_atomically(directory / "f", "text");
  REQUIRE(read_bytes(directory / "f") == "text");
  REQUIRE(read_bytes(directory / "precious") == "precious");
}

TEST_CASE("a directory takes a name, or changes places with the one that has it") {
  const TemporaryDirectory directory;
  write_bytes(directory / "new/f", "new");
  rename_or_exchange(directory / "new", directory / "named");
  REQUIRE(read_bytes(directory / "named/f") == "new");
  REQUIRE_FALSE(fs::exists(directory / "new"));
  write_bytes(directory / "newer/f", "newer");
  rename_or_exchange(directory / "newer", directory / "named");
  REQUIRE(read_bytes(directory / "named/f") == "newer");
  REQUIRE(read_bytes(directory / "newer/f") == "new");
  REQUIRE_THROWS_WITH(rename_or_exchange(directory / "x", directory / "y"),
                      Contains("cannot rename"));
}

}  // namespace
}  // namespace tessera
