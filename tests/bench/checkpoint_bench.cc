// SPDX-License-Identifier: Apache-2.0
// Times one write or one read of a checkpoint: bench_checkpoint write|read DIR [--layers=N]. The
// arrays are those of a GPT-2 with AdamW's moments (124M weights at 12 layers, f32). One line of
// JSON: bytes, wall seconds and processor seconds. tests/bench/checkpoint.py controls the page
// cache and the comparisons.
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/runtime/checkpoint/checkpoint_store.h"

namespace tessera {
namespace {

// The arrays, in the memory of a CPU device as in training.
struct State {
  std::vector<CheckpointArray> arrays;
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::vector<DeviceBuffer> storage;
  int64_t bytes = 0;
};

void add(State* state, const std::string& path, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  for (const char* kind : {"params", "learner/m", "learner/v"}) {
    const DeviceBuffer& buffer = state->storage.emplace_back(
        state->device.get(), state->device->allocate(4 * elements), 4 * elements);
    // Different numbers, which cannot be compressed or deduplicated.
    auto word = static_cast<uint32_t>(state->storage.size());
    buffer.map(HostAccess::kWrite, [&](std::span<std::byte> bytes) {
      for (size_t i = 0; i < bytes.size(); i += 4) {
        word = word * 1664525u + 1013904223u;
        const uint32_t bits = (word >> 9) | 0x3f000000u;
        std::memcpy(bytes.data() + i, &bits, 4);
      }
    });
    state->arrays.push_back({.path = fmt::format("{}/{}", kind, path), .shape = shape});
    state->bytes += 4 * elements;
  }
}

State gpt2(int64_t layers) {
  State state;
  add(&state, "lm.embedding.w", {50304, 768});
  add(&state, "lm.position.w", {1024, 768});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("lm.layers.{}.", i);
    add(&state, layer + "attention.qkv.w", {768, 3, 12, 64});
    add(&state, layer + "attention.post.w", {768, 12, 64});
    add(&state, layer + "ffn.up.w", {768, 3072});
    add(&state, layer + "ffn.down.w", {3072, 768});
    for (const char* name : {"attention.qkv.b", "ffn.up.b"})
      add(&state, layer + name, {name[0] == 'f' ? 3072 : 2304});
    for (const char* name : {"attention.post.b", "ffn.down.b", "norm_1.scale", "norm_1.bias",
                             "norm_2.scale", "norm_2.bias"})
      add(&state, layer + name, {768});
  }
  for (size_t i = 0; i < state.arrays.size(); ++i) state.arrays[i].bytes = state.storage[i];
  return state;
}

double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// The host of a virtual machine may have reclaimed free memory. Getting it back must not be part of
// the measurement.
void fill_free_memory() {
  const std::vector<std::byte> memory(size_t{2} << 30, std::byte{1});
  CHECK(memory.back() == std::byte{1});
}

void read_all(const std::filesystem::path& directory, State* state) {
  const Checkpoint checkpoint = CheckpointStore(directory).open(1);
  for (size_t i = 0; i < state->arrays.size(); ++i) {
    const CheckpointArray& array = state->arrays[i];
    state->storage[i].map(HostAccess::kWrite, [&](std::span<std::byte> bytes) {
      checkpoint.read_block(array.path, Region::whole(array.shape), bytes);
    });
  }
}

int run(int argc, char** argv) {
  if (argc < 3) fail("usage: bench_checkpoint write|read DIR [--layers=N]");
  const std::string what = argv[1];
  const std::filesystem::path directory = argv[2];
  int64_t layers = 12;
  if (argc > 3 && std::string(argv[3]).starts_with("--layers="))
    layers = std::atoll(argv[3] + std::strlen("--layers="));
  State state = gpt2(layers);
  fill_free_memory();
  const auto begin = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  if (what == "write") {
    ProcessGroup alone;
    CheckpointStore(directory).add({.step = 1}, state.arrays, alone);
  } else {
    read_all(directory, &state);
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"bytes\": {}, \"seconds\": {:.4f}, \"processor_seconds\": {:.4f}}}\n", state.bytes,
             wall.count(), processor_seconds() - processor);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_checkpoint: {}\n", error.what());
    return 1;
  }
}
