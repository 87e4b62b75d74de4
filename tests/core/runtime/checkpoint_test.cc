// SPDX-License-Identifier: Apache-2.0
// A single checkpoint: any block of an array can be read, and damage is an error, never zeros.
#include "core/runtime/checkpoint/checkpoint.h"

#include <cstdlib>
#include <list>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

void write(const fs::path& directory, const CheckpointCase& saved) {
  fs::create_directories(directory);
  write_checkpoint_shard(directory, saved.info, saved.arrays);
  write_checkpoint_index(directory, saved.info);
}

TEST_CASE("saved arrays are read bit for bit") {
  const TemporaryDirectory directory;
  const CheckpointCase saved(120);
  write(directory.path(), saved);
  const Checkpoint checkpoint(directory.path());
  REQUIRE(holds(checkpoint, saved));
  REQUIRE_NOTHROW(read_arrays(checkpoint));
  REQUIRE(checkpoint.entries().at("params/ffn/w").dtype == DType::kBF16);
  REQUIRE(checkpoint.entries().at("learner/scale").shape.empty());
}

TEST_CASE("arrays of several chunks are read, whole and in blocks") {
  const TemporaryDirectory directory;
  const CheckpointCase saved(1, 140000);  // 34 MiB, three chunks.
  write(directory.path(), saved);
  const Checkpoint checkpoint(directory.path());
  REQUIRE(holds(checkpoint, saved));
  std::vector<float> block(100 * 3);
  checkpoint.read_block("params/embedding/table", {{69950, 10}, {100, 3}},
                        std::as_writable_bytes(std::span(block)));
  for (int64_t row = 0; row < 100; ++row)
    for (int64_t column = 0; column < 3; ++column)
      REQUIRE(block[static_cast<size_t>(row * 3 + column)] ==
              static_cast<float>(((69950 + row) * 64 + 10 + column) * 7 + 32));
}

TEST_CASE("equal runs write equal files") {
  const TemporaryDirectory a;
  const TemporaryDirectory b;
  write(a.path(), CheckpointCase(7));
  write(b.path(), CheckpointCase(7));
  REQUIRE(read_bytes(a / "host_00000.h5") == read_bytes(b / "host_00000.h5"));
  REQUIRE(read_bytes(a / "index.h5") == read_bytes(b / "index.h5"));
}

// A 6 x 8 array in four pieces on two hosts, of unequal sizes.
class TwoHosts {
 public:
  explicit TwoHosts(const fs::path& directory) {
    for (int32_t i = 0; i < 48; ++i) whole.push_back(i);
    const std::vector<CheckpointArray> of_host[2] = {{piece({0, 0}, {4, 3}), scalar()},
                                                     {piece({4, 0}, {2, 3})}};
    write_checkpoint_shard(directory, info, of_host[0], {0, 3});
    write_checkpoint_shard(directory, info, of_host[1], {1, 3});
    write_checkpoint_shard(directory, info, {piece({0, 3}, {6, 5})}, {2, 3});
  }
  CheckpointArray piece(std::vector<int64_t> offset, std::vector<int64_t> shape) {
    std::vector<int32_t>& values = storage_.emplace_back();
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t column = 0; column < shape[1]; ++column)
        values.push_back(static_cast<int32_t>((offset[0] + row) * 8 + offset[1] + column));
    return {
        "params/w", DType::kI32, {6, 8}, Region{offset, shape}, std::as_bytes(std::span(values))};
  }
  CheckpointArray scalar() {
    std::vector<int32_t>& value = storage_.emplace_back(1, 5);
    return {.path = "train/step", .dtype = DType::kI32, .bytes = std::as_bytes(std::span(value))};
  }

  CheckpointInfo info{.step = 5};
  std::vector<int32_t> whole;

 private:
  std::list<std::vector<int32_t>> storage_;
};

TEST_CASE("pieces of several hosts are read as one array, in any blocks") {
  const TemporaryDirectory directory;
  const TwoHosts hosts(directory.path());
  write_checkpoint_index(directory.path(), hosts.info, 3);
  const Checkpoint checkpoint(directory.path());
  std::vector<int32_t> values(48);
  checkpoint.read_block("params/w", Region::whole({6, 8}),
                        std::as_writable_bytes(std::span(values)));
  REQUIRE(values == hosts.whole);
  for (int64_t row = 0; row < 6; ++row)
    for (int64_t column = 0; column < 8; ++column)
      for (int64_t rows = 1; row + rows <= 6; ++rows)
        for (int64_t columns = 1; column + columns <= 8; ++columns) {
          std::vector<int32_t> block(static_cast<size_t>(rows * columns), -1);
          checkpoint.read_block("params/w", {{row, column}, {rows, columns}},
                                std::as_writable_bytes(std::span(block)));
          for (int64_t i = 0; i < rows * columns; ++i)
            if (block[static_cast<size_t>(i)] != (row + i / columns) * 8 + column + i % columns)
              FAIL("block at " << row << " " << column << " of " << rows << " " << columns);
        }
}

TEST_CASE("any HDF5 client reads whole arrays from the index") {
  const TemporaryDirectory directory;
  const TwoHosts hosts(directory.path());
  write_checkpoint_index(directory.path(), hosts.info, 3);
  const Hdf5File index = Hdf5File::open(directory / "index.h5");
  const Hdf5Dataset dataset = index.dataset("params/w");
  REQUIRE(dataset.is_virtual());
  std::vector<int32_t> values(48);
  dataset.read(std::as_writable_bytes(std::span(values)));
  REQUIRE(values == hosts.whole);
  int32_t step = 0;
  index.dataset("train/step").read(std::as_writable_bytes(std::span(&step, 1)));
  REQUIRE(step == 5);
}

TEST_CASE("h5py reads a checkpoint as documented") {
  const std::string python = python_with("h5py");
  if (python.empty()) {
    WARN("skipped: no Python with h5py (Debian: python3-h5py)");
    return;
  }
  const TemporaryDirectory directory;
  write(directory / "c", CheckpointCase(9));
  write_bytes(directory / "read.py", R"(
import h5py, numpy, sys
f = h5py.File(sys.argv[1] + "/index.h5")
table = f["params/embedding/table"][:]
assert table.dtype == numpy.float32 and table.shape == (300, 64), table
assert table[2, 3] == (2 * 64 + 3) * 7 + 9 * 31 + 1
bits = (numpy.arange(16 * 24) * 7 + 9 * 31 + 1).astype(numpy.uint32) << 16
w = f["params/ffn/w"][:]
assert w.dtype == numpy.float32 and (w.ravel() == bits.view(numpy.float32)).all(), w
assert f["train/step"][()] == 9 * 31 + 1
assert f["train/nothing"].shape == (0, 4)
assert f.attrs["step"] == 9 and f.attrs["input_position"] == 27
assert f["hparams"][0].decode() == '[task]\nname = "é"\n', f["hparams"][0]
assert f["input_extra"].attrs["global_batch_size"].decode() == "12"
)");
  REQUIRE(std::system(fmt::format("cd / && {} {} {}", python, (directory / "read.py").string(),
                                  (directory / "c").string())
                          .c_str()) == 0);
}

TEST_CASE("a missing, short or swapped shard is an error, never zeros") {
  const TemporaryDirectory directory;
  const CheckpointCase saved(1);
  write(directory.path(), saved);
  const fs::path shard = directory / "host_00000.h5";
  const std::string bytes = read_bytes(shard);
  SECTION("missing") {
    fs::remove(shard);
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()), Contains("No such file"));
  }
  SECTION("short") {
    const size_t length = GENERATE(0, 10, 100, 5000, -1) % (read_bytes(shard).size());
    write_bytes(shard, bytes.substr(0, length));
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()), Contains("it was written with"));
  }
  SECTION("of another step") {
    const TemporaryDirectory other;
    write(other.path(), CheckpointCase(2));
    fs::copy_file(other / "host_00000.h5", shard, fs::copy_options::overwrite_existing);
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()), Contains("another checkpoint"));
  }
  SECTION("without the index") {
    fs::remove(directory / "index.h5");
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()),
                        Contains("index.h5: cannot open: No such file"));
  }
}

TEST_CASE("shards that leave a gap or overlap are an error") {
  const TemporaryDirectory directory;
  TwoHosts hosts(directory.path());
  SECTION("gap") {
    write_checkpoint_shard(directory.path(), hosts.info, {hosts.piece({0, 3}, {6, 4})}, {2, 3});
    write_checkpoint_index(directory.path(), hosts.info, 3);
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()), Contains("42 of the 48 elements"));
  }
  SECTION("overlap") {
    write_checkpoint_shard(directory.path(), hosts.info, {hosts.piece({0, 2}, {6, 6})}, {2, 3});
    write_checkpoint_index(directory.path(), hosts.info, 3);
    REQUIRE_THROWS_WITH(Checkpoint(directory.path()), Contains("overlap"));
  }
}

TEST_CASE("an unknown array or a wrong dtype or shape is an error that names what exists") {
  const TemporaryDirectory directory;
  write(directory.path(), CheckpointCase(1));
  const Checkpoint checkpoint(directory.path());
  REQUIRE_THROWS_WITH(checkpoint.expect("params/fnn/w", DType::kF32, {16, 24}),
                      Contains("no array") && Contains("did you mean 'params/ffn/w'"));
  REQUIRE_THROWS_WITH(checkpoint.expect("params/ffn/w", DType::kF32, {16, 24}),
                      Contains("'params/ffn/w' is bf16[16 24]; expected f32[16 24]"));
  REQUIRE_THROWS_WITH(checkpoint.expect("learner/m/ffn/w", DType::kF32, {24, 16}),
                      Contains("f32[16 24]; expected f32[24 16]"));
}

}  // namespace
}  // namespace tessera
