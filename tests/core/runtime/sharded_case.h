// SPDX-License-Identifier: Apache-2.0
// A run's arrays on a mesh, for checkpoint tests. Every element is a function of the array, its
// index and the step, so a misplaced block or a block of another step is detected.
#pragma once

#include <cstring>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "core/graph/type.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/support/transports.h"

namespace tessera {

struct ShardedArray {
  std::string path;
  Type type;                         // Global.
  std::vector<int64_t> stages = {};  // Stages that hold it; empty: all.
};

// Weights with FSDP and tensor parallelism, in each axis order, and replicated weights. On a mesh
// with stages, a stack of layers over them, and a table and a scale on one of them each.
inline std::vector<ShardedArray> sharded_arrays(const Mesh& mesh = Mesh::standard({1, 1, 1})) {
  const auto array = [](const char* path, DType dtype, std::vector<Axis> axes,
                        std::vector<int64_t> stages = {}) {
    return ShardedArray{path, make_type(dtype, std::move(axes)), std::move(stages)};
  };
  using Names = std::vector<std::string>;
  using Stages = std::vector<int64_t>;
  const bool staged = mesh.has(kStageAxis);
  const Names over_stages = staged ? Names{std::string(kStageAxis)} : Names{};
  return {
      array("params/up", DType::kF32, {{"embed", 48, {"data"}}, {"mlp", 24, {"mdl"}}}),
      array("params/down", DType::kBF16, {{"mlp", 24, {"mdl", "data"}}, {"embed", 48, {}}}),
      array("params/table", DType::kF32, {{"vocab", 48, {"data", "mdl"}}, {"embed", 5, {}}},
            staged ? Stages{0} : Stages{}),
      array("params/stack", DType::kF32,
            {{"layers", 5, over_stages},
             {"heads", 8, {"mdl"}},
             {"embed", 48, {"data"}},
             {"head_dim", 2, {}}}),
      array("params/scale", DType::kF32, {{"embed", 48, {}}},
            staged ? Stages{mesh.stages() - 1} : Stages{}),
      array("learner/m/up", DType::kF32, {{"embed", 48, {"data"}}, {"mlp", 24, {"mdl"}}}),
      array("learner/count", DType::kF32, {}),
  };
}

inline std::vector<int64_t> shape_of(const ShardedArray& array) {
  std::vector<int64_t> shape;
  for (const Axis& axis : array.type.axes) shape.push_back(axis.size);
  return shape;
}

// The bytes of a block. Element i of the whole array is salt + i, converted to the dtype.
inline std::vector<std::byte> block_bytes(const ShardedArray& array, const Region& block,
                                          int64_t salt) {
  const auto width = static_cast<size_t>(dtype_bytes(array.type.dtype));
  size_t elements = 1;
  for (const int64_t size : block.shape) elements *= static_cast<size_t>(size);
  std::vector<std::byte> bytes(elements * width);
  for (size_t i = 0; i < elements; ++i) {
    int64_t rest = static_cast<int64_t>(i), element = 0, inner = 1;
    for (size_t axis = block.shape.size(); axis-- > 0; rest /= block.shape[axis]) {
      element += (block.origin[axis] + rest % block.shape[axis]) * inner;
      inner *= array.type.axes[axis].size;
    }
    const auto value = static_cast<uint32_t>(element + salt);
    std::memcpy(bytes.data() + i * width, &value, width);
  }
  return bytes;
}

inline int64_t salt_of(const ShardedArray& array, int64_t step) {
  return 100000 * step + static_cast<int64_t>(array.path.size()) * 131;
}

// The pieces that one process owns, and their memory.
class ShardedProcess {
 public:
  ShardedProcess(const Mesh& mesh, int rank, int size, int64_t step)
      : info{.step = step, .seed = 3, .input_position = step, .hparams = "x = 1\n"} {
    const int64_t local = mesh.num_devices() / size;
    for (const ShardedArray& array : sharded_arrays(mesh)) {
      for (int64_t device = rank * local; device < (rank + 1) * local; ++device) {
        if (!owns_block(array.type, mesh, device, array.stages)) continue;
        for (const auto& [block, unused] : shard_blocks(array.type, mesh, device)) {
          const auto& bytes =
              storage_.emplace_back(block_bytes(array, block, salt_of(array, step)));
          pieces.push_back({array.path, array.type.dtype, shape_of(array), block, bytes});
        }
      }
    }
  }
  ShardedProcess(const ShardedProcess&) = delete;

  CheckpointInfo info;
  std::vector<CheckpointArray> pieces;

 private:
  std::list<std::vector<std::byte>> storage_;
};

// Whether each device of a mesh reads its blocks of every array with the values of the checkpoint's
// step.
inline bool loads_on(const Checkpoint& checkpoint, const Mesh& mesh) {
  if (checkpoint.entries().size() != sharded_arrays().size()) return false;
  for (const ShardedArray& array : sharded_arrays(mesh)) {
    checkpoint.expect(array.path, array.type.dtype, shape_of(array));
    for (int64_t device = 0; device < mesh.num_devices(); ++device) {
      for (const auto& [block, unused] : shard_blocks(array.type, mesh, device)) {
        const std::vector<std::byte> expected =
            block_bytes(array, block, salt_of(array, checkpoint.info().step));
        std::vector<std::byte> bytes(expected.size(), std::byte{0xee});
        checkpoint.read_block(array.path, block, bytes);
        if (bytes != expected) return false;
      }
    }
  }
  return true;
}

// Runs work(rank, transport) for each of `size` simulated processes, which are threads.
template <typename Work>
void on_processes(int size, Work work) {
  const auto transports = make_loopback(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { work(rank, transports[static_cast<size_t>(rank)]); });
}

// Saves this step on a mesh held by `size` processes.
inline void save_sharded(const std::filesystem::path& directory, const Mesh& mesh, int size,
                         int64_t step) {
  on_processes(size, [&](int rank, const std::shared_ptr<Transport>& transport) {
    ProcessGroup processes(transport);
    const ShardedProcess held(mesh, rank, size, step);
    CheckpointStore(directory).add(held.info, held.pieces, processes);
  });
}

}  // namespace tessera
