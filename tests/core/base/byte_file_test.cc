// SPDX-License-Identifier: Apache-2.0
// Bytes come back from where they were written, and what is no regular file is refused at once.
#include "core/io/byte_file.h"

#include <sys/stat.h>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("bytes are written and read at any place of a file") {
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
  REQUIRE_THROWS_WITH(file.read_at(5995, read), Contains("file: ends at byte 6000"));
}

TEST_CASE("only regular files are opened, and nothing waits for a FIFO's other end") {
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

TEST_CASE("a failure that may pass is told from a file that is missing or cannot be read") {
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
  // A regular file, of which the system can read nothing at 0 (EIO).
  REQUIRE(is_error_that_stays([&] { ByteFile::open("/proc/self/mem").read_at(0, one); }));
}

}  // namespace
}  // namespace tessera
