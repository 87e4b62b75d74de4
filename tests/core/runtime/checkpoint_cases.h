// SPDX-License-Identifier: Apache-2.0
// Arrays to save in checkpoint tests: every dtype, a scalar, an empty array and one of many chunks.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/runtime/checkpoint/checkpoint_store.h"

namespace tessera {

// Owns the arrays' bytes. They are a function of `step`, so that the checkpoints of two steps
// differ.
class CheckpointCase {
 public:
  explicit CheckpointCase(int64_t step, int64_t rows = 300) {
    add<float>("params/embedding/table", DType::kF32, {rows, 64}, step);
    add<uint16_t>("params/ffn/w", DType::kBF16, {16, 24}, step);
    add<float>("learner/m/ffn/w", DType::kF32, {16, 24}, step + 1);
    add<double>("learner/scale", DType::kF64, {}, step);
    add<int32_t>("train/step", DType::kI32, {}, step);
    add<uint32_t>("train/counts", DType::kU32, {7}, step);
    add<uint8_t>("train/flags", DType::kBool, {5}, step);
    add<float>("train/nothing", DType::kF32, {0, 4}, step);
    info = {.step = step,
            .seed = 0xfedcba9876543210u,
            .input_position = 3 * step,
            .input_extra = {{"global_batch_size", "12"}, {"data", ""}},
            .hparams = "[task]\nname = \"é\"\n"};
  }

  CheckpointInfo info;
  std::vector<CheckpointArray> arrays;
  const std::vector<std::byte>& bytes(const std::string& path) const { return storage_.at(path); }

 private:
  template <typename T>
  void add(const std::string& path, DType dtype, std::vector<int64_t> shape, int64_t salt) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    std::vector<std::byte>& bytes = storage_[path];
    bytes.resize(static_cast<size_t>(elements) * sizeof(T));
    for (int64_t i = 0; i < elements; ++i) {
      const T value = dtype == DType::kBool ? static_cast<T>((i + salt) % 2)
                                            : static_cast<T>(i * 7 + salt * 31 + 1);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
    }
    arrays.push_back({.path = path, .dtype = dtype, .shape = std::move(shape), .bytes = bytes});
  }
  std::map<std::string, std::vector<std::byte>> storage_;
};

// Whether a checkpoint has exactly this case's contents.
inline bool holds(const Checkpoint& checkpoint, const CheckpointCase& saved) {
  const CheckpointInfo& info = checkpoint.info();
  if (info.step != saved.info.step || info.seed != saved.info.seed ||
      info.input_position != saved.info.input_position ||
      info.input_extra != saved.info.input_extra || info.hparams != saved.info.hparams ||
      checkpoint.entries().size() != saved.arrays.size())
    return false;
  for (const CheckpointArray& array : saved.arrays) {
    std::vector<std::byte> bytes(array.bytes.size());
    checkpoint.expect(array.path, array.dtype, array.shape);
    checkpoint.read_block(array.path, Region::whole(array.shape), bytes);
    if (bytes != saved.bytes(array.path)) return false;
  }
  return true;
}

}  // namespace tessera
