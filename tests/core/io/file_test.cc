// SPDX-License-Identifier: Apache-2.0
#include "core/io/file.h"

#include <sys/stat.h>

#include <chrono>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("a file is replaced atomically, without leaving temporary files") {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "f", "one");
  write_file_atomically(directory / "f", "second");
  REQUIRE(read_file(directory / "f") == "second");
  REQUIRE(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a file that cannot be replaced stays, and the error has the reason") {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "f/occupied");
  REQUIRE_THROWS(write_file_atomically(directory / "f", "text"));
  REQUIRE(fs::exists(directory / "f/occupied"));
  REQUIRE(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
  REQUIRE_THROWS_WITH(write_file_atomically(directory / "none/f", "text"),
                      Contains("none/f: cannot write: there is no folder ") &&
                          !Contains("new"));  // Nothing of the temporary name.
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

TEST_CASE("a link with the temporary name is not written through") {
  const TemporaryDirectory directory;
  write_bytes(directory / "precious", "precious");
  fs::create_symlink(directory / "precious", temporary_beside(directory / "f", "new"));
  write_file_atomically(directory / "f", "text");
  REQUIRE(read_bytes(directory / "f") == "text");
  REQUIRE(read_bytes(directory / "precious") == "precious");
}

// Moves `directory` away and puts a link to `other` in its place.
void replace_with_link(const fs::path& directory, const fs::path& moved, const fs::path& other) {
  fs::rename(directory, moved);
  fs::create_directories(other);
  fs::create_directory_symlink(other, directory);
}

TEST_CASE("what is begun in a directory stays in it when a link takes the directory's name") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "d");
  NewFile file(directory / "d/f");
  file.write(std::as_bytes(std::span("text", 4)));
  NewDirectory folder(directory / "d/g");
  replace_with_link(directory / "d", directory / "moved", directory / "other");
  file.finish();
  folder.finish();
  REQUIRE(read_bytes(directory / "moved/f") == "text");
  REQUIRE(fs::is_directory(directory / "moved/g"));
  REQUIRE(fs::is_empty(directory / "other"));
}

TEST_CASE(
    "what killed writers of a file left is removed by the next one, and what is in use stays") {
  const TemporaryDirectory directory;
  for (const char* left : {".f.new.1", ".f.new.2/weights", ".f.old.3"})
    write_bytes(directory / left, "left over");
  for (const char* other : {".g.new.1", ".f.new.x", "f.new.1", ".f.new.6"})
    write_bytes(directory / other, "x");
  const auto age = [&](const char* name) {
    const auto before = fs::file_time_type::clock::now() - std::chrono::seconds(10);
    fs::last_write_time(directory / name, before);
  };
  for (const char* old : {".f.new.1", ".f.new.2", ".f.old.3", ".g.new.1", ".f.new.x"}) age(old);
  write_bytes(directory / "precious", "precious");
  fs::create_symlink(directory / "precious", directory / ".f.new.4");
  {
    const NewDirectory used(directory / "f");
    fs::rename(used.place(), directory / ".f.new.5");  // Imitates another process.
    age(".f.new.5");
    write_file_atomically(directory / "f", "text");
    REQUIRE(fs::exists(directory / ".f.new.5"));
  }
  for (const char* left : {".f.new.1", ".f.new.2", ".f.old.3", ".f.new.4"})
    REQUIRE_FALSE(fs::exists(fs::symlink_status(directory / left)));
  // .f.new.6 is so new that its writer may not have locked it yet.
  for (const char* other : {".g.new.1", ".f.new.x", "f.new.1", ".f.new.6", "precious"})
    REQUIRE(fs::exists(directory / other));
  age(".f.new.5");
  NewDirectory(directory / "f.d").finish();
  REQUIRE(fs::is_empty(directory / "f.d"));
  write_file_atomically(directory / "f", "text");
  REQUIRE_FALSE(fs::exists(directory / ".f.new.5"));  // No longer in use.
}

TEST_CASE("a file of another kind is not replaced") {
  const TemporaryDirectory directory;
  write_bytes(directory / "f", "{\"plan\": 1}");
  REQUIRE_NOTHROW(require_same_kind(directory / "f", "{\"plan\"", "a plan"));
  REQUIRE_NOTHROW(require_same_kind(directory / "none", "{\"plan\"", "a plan"));
  write_bytes(directory / "f", "my");
  REQUIRE_THROWS_WITH(require_same_kind(directory / "f", "{\"plan\"", "a plan"),
                      Contains("f exists and is not a plan"));
}

TEST_CASE("a directory is renamed, or exchanged with an existing one") {
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

TEST_CASE("bytes are written and read at any offset") {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes(1000, std::byte{7});
  {
    ByteFile file = ByteFile::create(directory / "file");
    file.write_at(5000, bytes);
    file.sync();
    REQUIRE(file.size() == 6000);
  }
  const ByteFile file = ByteFile::open(directory / "file");
  std::vector<std::byte> read(10);
  file.prefetch(0, 6000);
  file.read_at(4995, read);
  for (size_t i = 0; i < 10; ++i) REQUIRE(read[i] == (i < 5 ? std::byte{0} : std::byte{7}));
  REQUIRE_THROWS_WITH(file.read_at(5995, read), Contains("file: the file ends at byte 6000"));
}

TEST_CASE("only regular files are opened, and a FIFO does not block") {
  const TemporaryDirectory directory;
  const auto path = directory / "file";
  const auto refusal = [&] {
    try {
      ByteFile::open(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE_THAT(refusal(), Contains("file: cannot open: No such file or directory"));
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  REQUIRE_THAT(refusal(), Contains("file: expected a regular file, got a FIFO"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  REQUIRE_THAT(refusal(), Contains("file: expected a regular file, got a directory"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  REQUIRE_THAT(refusal(), Contains("file: expected a regular file, got a device"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("file", path);
  REQUIRE_THAT(refusal(), Contains("symbolic links"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/full", path);
  ByteFile::create(directory / "other");
  REQUIRE_THROWS_WITH(ByteFile::create(path), Contains("got a device"));
}

TEST_CASE("NoAccess is only thrown for failures that may be transient") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_AS(ByteFile::open(directory / std::string(300, 'a')), NoAccess);
  ByteFile::create(directory / "file").write_at(0, std::vector<std::byte>(10));
  const ByteFile file = ByteFile::open(directory / "file");
  std::byte byte{};
  const std::span<std::byte> one(&byte, 1);
  REQUIRE_THROWS_AS(file.read_at(-1, one), NoAccess);  // EINVAL.
  const auto is_error_that_stays = [](const auto& work) {
    try {
      work();
    } catch (const NoAccess&) {
      return false;
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  REQUIRE(is_error_that_stays([&] { file.read_at(10, one); }));
  REQUIRE(is_error_that_stays([&] { ByteFile::open(directory / "missing"); }));
  REQUIRE(is_error_that_stays([&] { ByteFile::open(directory / "file/below"); }));
  REQUIRE(is_error_that_stays([&] { ByteFile::open_to_write(directory.path()); }));
  // A regular file that cannot be read at offset 0 (EIO).
  REQUIRE(is_error_that_stays([&] { ByteFile::open("/proc/self/mem").read_at(0, one); }));
}

}  // namespace
}  // namespace tessera
