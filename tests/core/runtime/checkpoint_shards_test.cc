// SPDX-License-Identifier: Apache-2.0
// Checkpoints of several devices and processes: saved on one mesh and loaded on another. A save is
// complete or leaves nothing, and its error is the same in every process.
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>

#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "tests/core/runtime/sharded_case.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// Stages that hold these pieces of a stack of five layers.
Mesh mesh_of_stages(int64_t stages, std::vector<int64_t> layers_of_pieces, int64_t data = 1) {
  Mesh mesh({{"stage", stages}, {"data", data}, {"mdl", 1}});
  mesh.divide_layers(std::move(layers_of_pieces));
  return mesh;
}

std::vector<Mesh> meshes() {
  return {Mesh::standard({1, 1, 1}),      Mesh::standard({1, 2, 1}),
          Mesh::standard({1, 1, 2}),      Mesh::standard({4, 1, 1}),
          Mesh::standard({1, 4, 2}),      Mesh::standard({2, 2, 2}),
          Mesh::standard({1, 1, 8}),      Mesh::standard({1, 2, 2}, {1, 2, 1}),
          mesh_of_stages(2, {3, 2}),      mesh_of_stages(2, {1, 2, 1, 1}, 2),
          mesh_of_stages(4, {1, 1, 1, 2})};
}

TEST_CASE("a checkpoint of any mesh and number of processes loads on every other") {
  for (const Mesh& saved_on : meshes()) {
    for (const int size : {1, 2, 4}) {
      if (saved_on.num_devices() % size != 0) continue;
      const TemporaryDirectory directory;
      save_sharded(directory.path(), saved_on, size, 7);
      const Checkpoint checkpoint = CheckpointStore(directory.path()).open(7);
      read_arrays(checkpoint);
      for (const Mesh& mesh : meshes()) {
        CAPTURE(saved_on.text(), size, mesh.text());
        REQUIRE(loads_on(checkpoint, mesh));
      }
      for (int host = 0; host < size; ++host)
        REQUIRE(fs::exists(checkpoint.directory() / fmt::format("host_{:05}.h5", host)));
    }
  }
}

TEST_CASE("every element is written once, although several devices hold it") {
  for (const Mesh& mesh : meshes()) {
    for (const ShardedArray& array : sharded_arrays(mesh)) {
      int64_t elements = 0;
      for (const int rank : {0, 1}) {
        if (mesh.num_devices() % 2 != 0 && rank == 1) continue;
        const ShardedProcess held(mesh, rank, mesh.num_devices() % 2 == 0 ? 2 : 1, 1);
        for (const CheckpointArray& piece : held.pieces)
          if (piece.path == array.path)
            elements += static_cast<int64_t>(piece.bytes.size()) / dtype_bytes(array.type.dtype);
      }
      CAPTURE(mesh.text(), array.path);
      REQUIRE(elements == array.type.elements());
    }
  }
}

TEST_CASE("savers of several processes save one checkpoint after another") {
  const TemporaryDirectory directory;
  const Mesh mesh = Mesh::standard({1, 4, 2});
  std::mutex mutex;
  std::set<int64_t> reported;
  on_processes(4, [&](int rank, const std::shared_ptr<Transport>& transport) {
    CheckpointSaver saver(CheckpointStore(directory.path()), {.newest = 2},
                          std::make_unique<ProcessGroup>(transport, ProcessGroup::kTimeout, 1));
    ProcessGroup training(transport);  // The training thread uses its own channel at the same time.
    for (int64_t step = 1; step <= 5; ++step) {
      const ShardedProcess held(mesh, rank, 4, step);
      saver.save(held.info, held.pieces);
      training.barrier("a step");
      saver.reads()->await_all();
    }
    saver.wait();
    const std::lock_guard lock(mutex);
    for (const CheckpointSaver::Saved& saved : saver.take_saved()) reported.insert(saved.bytes);
  });
  const CheckpointStore store(directory.path());
  REQUIRE(store.steps() == std::vector<int64_t>{4, 5});
  for (const int64_t step : store.steps()) REQUIRE(loads_on(store.open(step), mesh));
  int64_t bytes = 0;
  for (const ShardedArray& array : sharded_arrays()) bytes += array.type.bytes();
  REQUIRE(reported == std::set<int64_t>{bytes});  // All arrays once, in every process.
}

TEST_CASE("a failure in one process fails the save in all, and leaves nothing") {
  const TemporaryDirectory directory;
  const Mesh mesh = Mesh::standard({1, 4, 1});
  save_sharded(directory / "checkpoints", mesh, 4, 1);
  std::mutex mutex;
  std::vector<std::string> errors;
  const int failing = GENERATE(0, 2, 3);
  on_processes(4, [&](int rank, const std::shared_ptr<Transport>& transport) {
    ProcessGroup processes(transport);
    const ShardedProcess held(mesh, rank, 4, 2);
    std::vector<CheckpointArray> pieces = held.pieces;
    // HDF5 refuses two datasets with one name.
    if (rank == failing) pieces.push_back(pieces.front());
    try {
      CheckpointStore(directory / "checkpoints").add(held.info, pieces, processes);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      errors.emplace_back(error.what());
    }
  });
  REQUIRE(errors.size() == 4);
  REQUIRE(std::set<std::string>(errors.begin(), errors.end()).size() == 1);
  REQUIRE_THAT(errors[0], Contains("cannot save the checkpoint of step 2") &&
                              Contains(fmt::format("process {}", failing)));
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(directory / "checkpoints"))
    left.push_back(entry.path().filename());
  REQUIRE(left == std::vector<fs::path>{"step_0000000001"});
  REQUIRE(loads_on(CheckpointStore(directory / "checkpoints").open(1), mesh));
}

TEST_CASE("a process that does not take part in a save is named, and nothing is saved") {
  const TemporaryDirectory directory;
  const Mesh mesh = Mesh::standard({1, 4, 1});
  std::mutex mutex;
  std::vector<std::string> errors;
  on_processes(2, [&](int rank, const std::shared_ptr<Transport>& transport) {
    if (rank == 1) return;
    ProcessGroup processes(transport, std::chrono::milliseconds(100));
    const ShardedProcess held(mesh, rank, 2, 2);
    try {
      CheckpointStore(directory.path()).add(held.info, held.pieces, processes);
    } catch (const Error& error) {
      errors.emplace_back(error.what());
    }
  });
  REQUIRE(errors.size() == 1);
  REQUIRE_THAT(errors[0], Contains("process 1") && Contains("saving step 2"));
  REQUIRE(fs::is_empty(directory.path()));
}

TEST_CASE("a damaged byte is found by the devices that read it, and only by those") {
  const TemporaryDirectory directory;
  // 32 MiB, in tiles of 4: 2048 rows each.
  std::vector<float> values(16384 * 512);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const CheckpointArray whole{.path = "params/w",
                              .dtype = DType::kF32,
                              .shape = {16384, 512},
                              .bytes = std::as_bytes(std::span(values))};
  ProcessGroup alone;
  CheckpointStore(directory.path()).add({.step = 1}, {whole}, alone);
  const fs::path shard = CheckpointStore(directory.path()).path_of(1) / "host_00000.h5";
  // In the seventh tile.
  const float near = 12288.0f * 512;
  const std::string needle(reinterpret_cast<const char*>(&near), 4);
  std::string bytes = read_bytes(shard);
  const size_t at = bytes.find(needle);
  REQUIRE(at != std::string::npos);
  REQUIRE(bytes.substr(at, 2) == std::string(2, '\0'));
  bytes[at] = bytes[at + 1] = '\xff';
  write_bytes(shard, bytes);
  const Checkpoint checkpoint = CheckpointStore(directory.path()).open(1);
  std::vector<std::byte> block(1024 * 512 * 4);
  REQUIRE_NOTHROW(checkpoint.read_block("params/w", {{4096, 0}, {1024, 512}}, block));
  REQUIRE_NOTHROW(checkpoint.read_block("params/w", {{11264, 0}, {1024, 512}}, block));
  REQUIRE_THROWS_WITH(checkpoint.read_block("params/w", {{14335, 0}, {1024, 512}}, block),
                      Contains("'params/w' is damaged"));
  block.resize(16384 * 8 * 4);
  REQUIRE_THROWS_WITH(checkpoint.read_block("params/w", {{0, 8}, {16384, 8}}, block),
                      Contains("'params/w' is damaged"));
  REQUIRE_THROWS_WITH(read_arrays(checkpoint), Contains("'params/w' is damaged"));
}

TEST_CASE("a missing or short shard of one host is an error in all processes") {
  const TemporaryDirectory directory;
  save_sharded(directory.path(), Mesh::standard({1, 4, 1}), 4, 1);
  const CheckpointStore store(directory.path());
  const fs::path shard = store.path_of(1) / "host_00002.h5";
  SECTION("missing") {
    fs::remove(shard);
    REQUIRE_THROWS_WITH(store.open(1), Contains("host_00002.h5") && Contains("No such file"));
  }
  SECTION("short") {
    fs::resize_file(shard, fs::file_size(shard) - 1);
    REQUIRE_THROWS_WITH(store.open(1), Contains("host_00002.h5") && Contains("written with"));
  }
  SECTION("of another number of hosts") {
    const TemporaryDirectory other;
    save_sharded(other.path(), Mesh::standard({1, 4, 1}), 2, 1);
    fs::copy_file(CheckpointStore(other.path()).path_of(1) / "host_00001.h5",
                  store.path_of(1) / "host_00001.h5", fs::copy_options::overwrite_existing);
    REQUIRE_THROWS(store.open(1));
  }
}

TEST_CASE("h5py reads the whole arrays of a sharded checkpoint") {
  const std::string python = python_with("h5py");
  if (python.empty()) {
    WARN("skipped: no Python with h5py (Debian: python3-h5py)");
    return;
  }
  const TemporaryDirectory directory;
  save_sharded(directory / "checkpoints", Mesh::standard({1, 4, 2}), 4, 9);
  write_bytes(directory / "read.py", R"(
import h5py, numpy, sys
f = h5py.File(sys.argv[1] + "/step_0000000009/index.h5")
def whole(path, *shape):
    bits = numpy.arange(numpy.prod(shape)).reshape(shape) + 900000 + 131 * len(path)
    assert f[path].shape == shape, f[path]
    return f[path][:], bits.astype(numpy.uint32)
for path, shape in [("params/up", (48, 24)), ("params/table", (48, 5)),
                    ("params/stack", (3, 8, 48, 2)), ("learner/m/up", (48, 24))]:
    values, bits = whole(path, *shape)
    assert (values.view(numpy.uint32) == bits).all(), path
values, bits = whole("params/down", 24, 48)
assert ((values.view(numpy.uint32) >> 16) == (bits & 0xffff)).all()
assert f.attrs["step"] == 9 and len(f.attrs["shard_bytes"]) == 4
)");
  REQUIRE(std::system(fmt::format("cd / && {} {} {}", python, (directory / "read.py").string(),
                                  (directory / "checkpoints").string())
                          .c_str()) == 0);
}

}  // namespace
}  // namespace tessera
