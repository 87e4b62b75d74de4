// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile checkpoints: a flipped bit in any file is an error that says what to remove,
// and no replacement of a file crashes the program.
#include <sys/stat.h>

#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "core/runtime/checkpoint/checkpoint_table.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/core/runtime/sharded_case.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// The error when the checkpoint of a step is opened and read; "" if there is no error.
std::string complaint(const CheckpointStore& store, int64_t step) {
  try {
    store.open(step).verify();
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
  std::vector<fs::path> files;  // Of step 20.
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

TEST_CASE("a checkpoint of a later version is not called damaged") {
  const TwoHostStore stored;
  const fs::path table = stored.store.path_of(20) / "index.table";
  std::string text = read_bytes(table);
  text = text.substr(0, text.size() - 13);  // "end 0123abcd\n"
  text.replace(text.find(" 3\n"), 3, " 4\n");
  write_bytes(table, text + fmt::format("end {:08x}\n", crc32c(std::as_bytes(std::span(text)))));
  REQUIRE_THROWS_WITH(stored.store.open(20),
                      Contains("format 4; this build reads formats 1 to 3") && !Contains("remove"));
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

TEST_CASE("checkpoints of formats 1 and 2 are read") {
  for (const char* format : {"checkpoint_format_1", "checkpoint_format_2"}) {
    CAPTURE(format);
    const Checkpoint checkpoint(fs::path(TESSERA_SOURCE_DIR) / "tests/golden" / format);
    REQUIRE(holds(checkpoint, CheckpointCase(120, 10)));
    REQUIRE_NOTHROW(checkpoint.verify());
    std::vector<float> block(2 * 64);  // Of the rows that two hosts hold.
    checkpoint.read_block("params/embedding/table", {{5, 0}, {2, 64}},
                          std::as_writable_bytes(std::span(block)));
    REQUIRE(block[64] == static_cast<float>(6 * 64 * 7 + 120 * 31 + 1));
  }
}

// Copies of the stored checkpoints of step 120, in which an array may be damaged.
class OldStore {
 public:
  explicit OldStore(const std::string& format) : store(directory_.path()) {
    fs::copy(fs::path(TESSERA_SOURCE_DIR) / "tests/golden" / format, store.path_of(120));
  }

 private:
  TemporaryDirectory directory_;

 public:
  CheckpointStore store;
  // The shard's file and the offset of the array's first bytes.
  std::pair<fs::path, size_t> place_of(std::string_view first_bytes) const {
    const fs::path shard = store.path_of(120) / "host_00000.h5";
    const size_t at = read_bytes(shard).find(first_bytes);
    REQUIRE(at != std::string::npos);
    return {shard, at};
  }
};

std::string_view first_bytes_of(const CheckpointCase& saved, const std::string& path) {
  const std::vector<std::byte>& bytes = saved.bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 256)};
}

TEST_CASE("damage to an array of a checkpoint of format 1 or 2 is refused") {
  const std::string format = GENERATE("checkpoint_format_1", "checkpoint_format_2");
  const CheckpointCase saved(120, 10);
  for (const CheckpointArray& array : saved.arrays) {
    if (array.bytes.size() < 16) continue;  // In HDF5's own structures.
    const OldStore old(format);
    REQUIRE(complaint(old.store, 120).empty());
    const auto [shard, at] = old.place_of(first_bytes_of(saved, array.path));
    std::string bytes = read_bytes(shard);
    bytes[at + 5] ^= '\x10';
    write_bytes(shard, bytes);
    CAPTURE(format, array.path);
    REQUIRE_THAT(complaint(old.store, 120), Contains("the checkpoint of step 120 is damaged"));
  }
}

TEST_CASE("damage to formats 1 and 2 that HDF5's own checksum does not see is refused") {
  // Fletcher-32 does not distinguish words of zero bits from words of one bits.
  const OldStore old(GENERATE("checkpoint_format_1", "checkpoint_format_2"));
  const CheckpointCase saved(120, 10);
  const std::string_view array = first_bytes_of(saved, "params/embedding/table");
  const auto [shard, at] = old.place_of(array);
  size_t word = 0;
  while (array.substr(word, 2) != std::string_view("\0\0", 2)) word += 2;
  REQUIRE(word < array.size());
  std::string bytes = read_bytes(shard);
  bytes.replace(at + word, 2, "\xff\xff");
  write_bytes(shard, bytes);
  REQUIRE_THAT(complaint(old.store, 120),
               Contains("'params/embedding/table' is damaged: its checksum does not match"));
}

// The description of the only array of an old shard, which has four elements.
struct OldPiece {
  int64_t version = 2;
  int64_t offset = 0;
  std::vector<int64_t> chunk = {4};
  std::optional<std::vector<int64_t>> checksums;  // Unset: the right ones.
};

std::string complaint_of(const OldPiece& piece) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes(16, std::byte{1});
  Hdf5File shard = Hdf5File::create(directory / "host_00000.h5");
  shard.set_attribute("/", "step", int64_t{5});
  shard.set_attribute("/", "host", int64_t{0});
  shard.set_attribute("/", "num_hosts", int64_t{1});
  shard.create_dataset("params/w", StoredType::kF32, {4}).write(bytes);
  shard.set_attribute("params/w", "offset", std::vector<int64_t>{piece.offset});
  if (piece.version > 1) shard.set_attribute("params/w", "chunk", piece.chunk);
  shard.set_attribute("params/w", "crc32c",
                      piece.checksums.value_or(std::vector<int64_t>{crc32c(bytes)}));
  shard.close();
  Hdf5File index = Hdf5File::create(directory / "index.h5");
  index.set_attribute("/", "format_version", piece.version);
  for (const char* name : {"seed", "input_position"}) index.set_attribute("/", name, int64_t{0});
  index.set_attribute("/", "step", int64_t{5});
  index.set_attribute("/", "graph_hash", std::string_view("00"));
  index.write_text("hparams", "");
  index.create_group("input_extra");
  index.write_text("arrays", "f32 [4] params/w\n");
  const auto size = static_cast<int64_t>(fs::file_size(directory / "host_00000.h5"));
  index.set_attribute("/", "shard_bytes", std::vector<int64_t>{size});
  index.close();
  try {
    Checkpoint(directory.path()).verify();
  } catch (const DamagedCheckpoint& error) {
    return error.what();
  }
  return "";
}

TEST_CASE(
    "pieces of old formats with invalid offsets, chunks or numbers of checksums are refused") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t version : {1, 2}) {
    CAPTURE(version);
    REQUIRE(complaint_of({.version = version}).empty());
    for (const int64_t offset : {kMost, kMost - 1, int64_t{1}, int64_t{-1}})
      REQUIRE_THAT(complaint_of({.version = version, .offset = offset}), Contains("lies outside"));
    REQUIRE_THAT(complaint_of({.version = version, .checksums = std::vector<int64_t>{}}),
                 Contains("0 checksums of 1 chunks"));
  }
  for (const int64_t chunk : {kMost, int64_t{5}, int64_t{0}, int64_t{-1}})
    REQUIRE_THAT(complaint_of({.chunk = {chunk}}), Contains("do not fit"));
}

}  // namespace
}  // namespace tessera
