// SPDX-License-Identifier: Apache-2.0
// The HDF5 wrapper: reads return what was written, and a full disk is an error.
#include "core/io/hdf5.h"

#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("every element type is read as it was written") {
  const TemporaryDirectory directory;
  const StoredType type =
      GENERATE(StoredType::kU8, StoredType::kU32, StoredType::kU64, StoredType::kI32,
               StoredType::kI64, StoredType::kF32, StoredType::kF64, StoredType::kBF16);
  std::vector<std::byte> bytes(static_cast<size_t>(6 * stored_type_bytes(type)));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(37 * i + 1);
  Hdf5File file = Hdf5File::create(directory / "f.h5");
  file.create_dataset("group/data", type, {2, 3}).write(bytes);
  file.close();
  const Hdf5File opened = Hdf5File::open(directory / "f.h5");
  REQUIRE(opened.dataset_paths() == std::vector<std::string>{"group/data"});
  const Hdf5Dataset dataset = opened.dataset("group/data");
  REQUIRE(dataset.type() == type);
  REQUIRE(dataset.shape() == std::vector<int64_t>{2, 3});
  std::vector<std::byte> read(bytes.size());
  dataset.read(read);
  REQUIRE(read == bytes);
}

TEST_CASE("a file with deeply nested groups is refused at once") {
  const TemporaryDirectory directory;
  const auto nested = [&](int levels) {
    std::string path;
    for (int i = 0; i < levels; ++i) path += "g/";
    Hdf5File file = Hdf5File::create(directory / "f.h5");
    file.create_dataset(path + "data", StoredType::kU8, {1});
    file.close();
    return Hdf5File::open(directory / "f.h5");
  };
  REQUIRE(nested(20).dataset_paths().size() == 1);
  REQUIRE_THROWS_WITH(nested(60).dataset_paths(),
                      Contains("f.h5: its groups are nested more than 32 deep"));
}

TEST_CASE("attributes of any length are read as they were written") {
  const TemporaryDirectory directory;
  const std::string large(200000, 'x');
  Hdf5File file = Hdf5File::create(directory / "f.h5");
  file.write_text("written", "é\n");
  file.set_attribute("/", "text", "é");
  file.set_attribute("/", "nothing", "");
  file.set_attribute("/", "large", large);  // Beyond the 64 KiB of an object's header.
  file.set_attribute("/", "integer", int64_t{-5});
  file.set_attribute("/", "list", std::vector<int64_t>{3, 1});
  file.close();
  const Hdf5File opened = Hdf5File::open(directory / "f.h5");
  REQUIRE(opened.text_attribute("/", "text") == "é");
  REQUIRE(opened.text_attribute("/", "nothing") == "");
  REQUIRE(opened.text_attribute("/", "large") == large);
  REQUIRE(opened.integer_attribute("/", "integer") == -5);
  REQUIRE_THROWS_WITH(opened.text_attribute("/", "integer"), Contains("expected a text"));
  REQUIRE_THROWS_WITH(opened.integer_attribute("/", "text"), Contains("expected a number"));
  REQUIRE_THROWS_WITH(opened.integer_attribute("/", "list"),
                      Contains("expected one number, got 2"));
  REQUIRE_THROWS_WITH(opened.integer_attribute("/", "absent"), Contains("'absent' is missing"));
  REQUIRE_THROWS_WITH(opened.dataset("written"), Contains("unsupported element type"));
  REQUIRE_THROWS_WITH(opened.dataset("a/b"), Contains("no such dataset"));
}

// The file was made by h5py: external storage in secret.bin, an external link to fifo.h5, a soft
// link to `inside`, and a virtual dataset of fifo.h5.
TEST_CASE("data in other files are not read, and links are not followed") {
  const TemporaryDirectory directory;
  fs::copy_file(fs::path(TESSERA_SOURCE_DIR) / "tests/golden/hdf5_other_files.h5",
                directory / "f.h5");
  write_bytes(directory / "secret.bin", "0123456789abcdef");
  REQUIRE(::mkfifo((directory / "fifo.h5").c_str(), 0600) == 0);
  const Hdf5File file = Hdf5File::open(directory / "f.h5");
  REQUIRE(file.dataset("inside").elements() == 4);
  REQUIRE(file.dataset("virtual").is_virtual());  // For readers that refuse it.
  REQUIRE_THROWS_WITH(file.dataset("outside"), Contains("HDF5 external storage"));
  for (const char* link : {"link", "soft", "link/below"}) {
    INFO(link);
    REQUIRE_THROWS_WITH(file.dataset(link), Contains("links are not followed"));
    REQUIRE_THROWS_WITH(file.integer_attribute(link, "x"), Contains("links are not followed"));
    REQUIRE_FALSE(file.has_attribute(link, "x"));
  }
}

TEST_CASE("a new HDF5 file is not written through a link or into a FIFO") {
  const TemporaryDirectory directory;
  write_bytes(directory / "precious", "precious");
  fs::create_symlink(directory / "precious", directory / "f.h5");
  Hdf5File::create(directory / "f.h5").close();
  REQUIRE(read_bytes(directory / "precious") == "precious");
  fs::create_hard_link(directory / "precious", directory / "g.h5");
  Hdf5File::create(directory / "g.h5").close();
  REQUIRE(read_bytes(directory / "precious") == "precious");
  REQUIRE(::mkfifo((directory / "h.h5").c_str(), 0600) == 0);
  REQUIRE_THROWS_WITH(Hdf5File::create(directory / "h.h5"), Contains("got a FIFO"));
}

TEST_CASE("elements that were never written are distinguished from zeros") {
  const TemporaryDirectory directory;
  Hdf5File file = Hdf5File::create(directory / "f.h5");
  file.create_dataset("absent", StoredType::kF32, {10});
  Hdf5Dataset half = file.create_dataset("half", StoredType::kU8, {8}, {.chunk = {4}});
  half.write({{0}, {4}}, std::vector<std::byte>(4));
  REQUIRE_FALSE(half.fully_stored());
  half.write({{4}, {4}}, std::vector<std::byte>(4));
  REQUIRE(half.fully_stored());
  file.close();
  REQUIRE_FALSE(Hdf5File::open(directory / "f.h5").dataset("absent").fully_stored());
}

TEST_CASE("a full disk is an Error at every size, and the space is freed") {
  const TemporaryDirectory directory;
  const fs::path disk = directory / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
    WARN("skipped: may not mount a small tmpfs: " << std::strerror(errno));
    return;
  }
  // From one large array to metadata only.
  for (const int64_t size : {3000000, 500000, 70000, 60000, 4096, 1000, 100, 1}) {
    const auto write = [&] {
      Hdf5File file = Hdf5File::create(disk / "f.h5");
      const std::vector<std::byte> bytes(static_cast<size_t>(size));
      for (int64_t i = 0; i < 3000000 / size && i < 20000; ++i)
        file.create_dataset(fmt::format("{:0200}", i), StoredType::kU8, {size}).write(bytes);
      file.close();
    };
    REQUIRE_THROWS_WITH(write(), Contains("No space left on device"));
    fs::remove(disk / "f.h5");
    REQUIRE(fs::space(disk).available == 2 << 20);
  }
  ::umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace tessera
