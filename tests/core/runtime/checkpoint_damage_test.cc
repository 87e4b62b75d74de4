// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile checkpoints: a flipped bit in any file is an error that says what to remove,
// and no replacement of a file crashes the program.
#include <sys/stat.h>

#include <functional>
#include <random>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_table.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/core/runtime/sharded_case.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// The error when the checkpoint of a step is opened and read; "" if there is no error.
std::string complaint(const CheckpointStore& store, int64_t step) {
  try {
    read_arrays(store.open(step));
  } catch (const DamagedCheckpoint& error) {
    return error.what();
  }
  return "";
}

// A checkpoint of two hosts, and one of an earlier step to fall back to.
class TwoHostStore {
 public:
  TwoHostStore() : store(directory_.path()) {
    save_sharded(directory_.path(), Mesh::standard({1, 2, 1}), 2, 10);
    save_sharded(directory_.path(), Mesh::standard({1, 2, 1}), 2, 20);
    for (const auto& entry : fs::directory_iterator(store.path_of(20)))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  }

 private:
  TemporaryDirectory directory_;

 public:
  CheckpointStore store;
  std::vector<fs::path> files;  // Files of step 20.
};

// The error when one bit of a byte is flipped. Restores the file.
std::string complaint_of_flip(const TwoHostStore& stored, const fs::path& path, int64_t at,
                              int bit) {
  ByteFile file = ByteFile::open_to_write(path);
  std::byte byte{};
  file.read_at(at, std::span(&byte, 1));
  const std::byte flipped = byte ^ static_cast<std::byte>(1 << bit);
  file.write_at(at, std::span(&flipped, 1));
  const std::string said = complaint(stored.store, 20);
  file.write_at(at, std::span(&byte, 1));
  return said;
}

void check_flip(const TwoHostStore& stored, const fs::path& path, int64_t at, int bit) {
  const std::string said = complaint_of_flip(stored, path, at, bit);
  const std::string directory = stored.store.path_of(20).string();
  if (said.find("to resume from step 10, remove " + directory) == std::string::npos)
    FAIL(path.filename() << ", byte " << at << ", bit " << bit << ": '" << said << "'");
}

TEST_CASE("a flipped bit in any file of a checkpoint is refused, with the directory to remove") {
  const TwoHostStore stored;
  REQUIRE(stored.files.size() == 6);  // index.h5, two shards, and their tables.
  REQUIRE(complaint(stored.store, 20).empty());
  std::mt19937_64 random(2);
  for (const fs::path& path : stored.files) {
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int i = 0; i < 60; ++i)
      check_flip(stored, path, static_cast<int64_t>(random() % static_cast<uint64_t>(size)), i % 8);
    for (int64_t at = std::max<int64_t>(0, size - 20); at < size; ++at)
      check_flip(stored, path, at, static_cast<int>(at % 8));
  }
  REQUIRE(complaint(stored.store, 20).empty());
}

TEST_CASE("each flipped bit of every byte of a checkpoint is refused", "[full]") {
  const TwoHostStore stored;
  int64_t flips = 0;
  for (const fs::path& path : stored.files) {
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t at = 0; at < size; ++at)
      for (int bit = 0; bit < 8; ++bit, ++flips) check_flip(stored, path, at, bit);
  }
  WARN(flips << " flips, each refused");
  REQUIRE(complaint(stored.store, 20).empty());
}

TEST_CASE("a file that is cut short, longer or empty is refused") {
  const TwoHostStore stored;
  for (const fs::path& path : stored.files) {
    const std::string bytes = read_bytes(path);
    for (const size_t length : {size_t{0}, size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
      write_bytes(path, bytes.substr(0, length));
      CAPTURE(path, length);
      REQUIRE_THAT(complaint(stored.store, 20), Contains("remove "));
    }
    write_bytes(path, bytes + "x");
    REQUIRE_THAT(complaint(stored.store, 20), Contains("remove "));
    fs::remove(path);
    REQUIRE_THAT(complaint(stored.store, 20),
                 (Contains("No such file") || Contains("missing")) && Contains("remove "));
    write_bytes(path, bytes);
  }
  REQUIRE(complaint(stored.store, 20).empty());
}

TEST_CASE("a special file in place of a regular one is refused at once") {
  const TwoHostStore stored;
  const auto replace = [&](const fs::path& path, const std::function<void()>& make,
                           const std::string& expected) {
    const std::string bytes = read_bytes(path);
    fs::remove(path);
    make();
    CAPTURE(path);
    REQUIRE_THAT(complaint(stored.store, 20), Contains(expected) && Contains(path.string()));
    fs::remove(path);
    write_bytes(path, bytes);
  };
  for (const fs::path& path : stored.files) {
    replace(
        path, [&] { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }, "expected a regular file");
    replace(
        path, [&] { fs::create_symlink("/dev/zero", path); }, "expected a regular file");
    replace(
        path, [&] { fs::create_symlink(path, path); }, "symbolic links");
    replace(
        path, [&] { fs::create_directory(path); }, path.filename().string());
  }
  REQUIRE(complaint(stored.store, 20).empty());
}

TEST_CASE(
    "a symbolic link to itself in place of a checkpoint is an error that names it and a remedy") {
  const TwoHostStore stored;
  fs::create_directory_symlink("step_0000000030", stored.store.path_of(30));
  REQUIRE_THROWS_WITH(stored.store.steps(), Contains("step_0000000030") &&
                                                Contains("symbolic links") &&
                                                Contains("remove it"));
}

TEST_CASE("a directory with another step's name is refused") {
  const TwoHostStore stored;
  const fs::path a = stored.store.path_of(10), b = stored.store.path_of(20);
  fs::rename(a, b.parent_path() / "aside");
  fs::rename(b, a);
  fs::rename(b.parent_path() / "aside", b);
  REQUIRE_THAT(complaint(stored.store, 20), Contains("holds the checkpoint of step 10") &&
                                                Contains("step_0000000010") &&
                                                Contains(b.string()));
  REQUIRE_THAT(complaint(stored.store, 10), Contains("holds the checkpoint of step 20"));
}

TEST_CASE("files of another checkpoint are refused, even if their names and sizes are right") {
  const TwoHostStore stored;
  for (const fs::path& path : stored.files) {
    const std::string bytes = read_bytes(path);
    fs::copy_file(stored.store.path_of(10) / path.filename(), path,
                  fs::copy_options::overwrite_existing);
    CAPTURE(path);
    REQUIRE_THAT(complaint(stored.store, 20), Contains(path.filename().string().substr(0, 5)));
    write_bytes(path, bytes);
  }
}

TEST_CASE("a checkpoint of another format is not called damaged") {
  const TwoHostStore stored;
  const fs::path table = stored.store.path_of(20) / "index.table";
  const std::string stored_text = read_bytes(table);
  for (const char* format : {"2", "4"}) {
    std::string text = stored_text.substr(0, stored_text.size() - 13);  // "end 0123abcd\n"
    text.replace(text.find(" 3\n"), 3, fmt::format(" {}\n", format));
    write_bytes(table, text + fmt::format("end {:08x}\n", crc32c(std::as_bytes(std::span(text)))));
    REQUIRE_THROWS_WITH(stored.store.open(20),
                        Contains(fmt::format("format {}; this build reads format 3", format)) &&
                            !Contains("remove"));
  }
}

// Random text with the right checksum.
std::string summed(const std::string& text) {
  return text + fmt::format("end {:08x}\n", crc32c(std::as_bytes(std::span(text))));
}

std::string mutated(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> kWords = {"-1",
                                                  "0",
                                                  "9223372036854775807",
                                                  "18446744073709551616",
                                                  "4294967296",
                                                  "[",
                                                  "]",
                                                  "\n",
                                                  " ",
                                                  ",",
                                                  "f32",
                                                  "[0 9223372036854775807]",
                                                  "text ",
                                                  "",
                                                  "\xff"};
  for (uint64_t i = 0; i <= random() % 3; ++i) {
    const size_t at = random() % text.size();
    const std::string& word = kWords[random() % kWords.size()];
    text.replace(at, random() % 6, word);
    if (text.empty()) text = " ";
  }
  return text;
}

template <typename Parse>
void check_mutations(const std::string& table, int count, Parse parse) {
  const std::string text = table.substr(0, table.size() - 13);
  std::mt19937_64 random(7);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    try {
      parse(summed(mutated(text, random)));
    } catch (const Error&) {
      ++refused;
    }
  }
  CAPTURE(refused, count);
  REQUIRE(refused > count / 2);
}

TEST_CASE("random tables are parsed or refused, and parsed tables are valid") {
  const TwoHostStore stored;
  check_mutations(
      read_bytes(stored.store.path_of(20) / "host_00000.table"), 20000,
      [](const std::string& text) {
        for (const CheckpointPiece& piece : parse_shard_table(text, "table").pieces) {
          const Tiles tiles(piece.block.shape, piece.tile);
          REQUIRE(tiles.count() == std::ssize(piece.checksums));
          REQUIRE(piece.bytes() >= 0);
          if (piece.bytes() > 0) {
            const int64_t last = tiles.count() - 1;
            REQUIRE(Subarray(Region::whole(piece.block.shape), tiles.at(last), 1).begin() +
                        tiles.at(last).elements() ==
                    piece.block.elements());
          }
        }
      });
  check_mutations(read_bytes(stored.store.path_of(20) / "index.table"), 5000,
                  [](const std::string& text) { parse_index_table(text, "table"); });
}

}  // namespace
}  // namespace tessera
