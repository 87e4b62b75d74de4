// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/model_state.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/devices/iteration_space.h"
#include "core/devices/reference/array.h"
#include "core/runtime/checkpoint/remapping.h"
#include "tasks/task/base_task.h"
#include "tasks/task/learner/learner.h"
#include "tasks/task/learner/path_patterns.h"

namespace tessera {
namespace {

constexpr std::string_view kParameters = "params/";

std::string checkpoint_path(const Buffer& buffer) {
  return buffer.kind == InputKind::kParameter ? parameter_array_path(buffer.name) : buffer.name;
}

// Caches are computed from prompts and not saved.
bool is_kept(const Buffer& buffer) { return !buffer.name.starts_with(names::kCachePrefix); }

// Null if no program has the array.
const Buffer* find_buffer(const Executor& executor, std::string_view name) {
  const auto& buffers = executor.persistent();
  const auto found = std::ranges::find(buffers, name, &Buffer::name);
  return found != buffers.end() ? &*found : nullptr;
}

bool persists(const Executor& executor, std::string_view name) {
  return find_buffer(executor, name) != nullptr;
}

void copy_shard(const Shard& from, const Shard& to) {
  from.memory.map(HostAccess::kRead, [&](std::span<const std::byte> source) {
    to.memory.map(HostAccess::kWrite, [&](std::span<std::byte> destination) {
      std::copy(source.begin(), source.end(), destination.begin());
    });
  });
}

// Calls fill(block, bytes) for each distinct block that this process's devices hold of an array,
// and copies it to the devices that hold the same block.
template <typename Fill>
void fill_shards(Executor& executor, std::string_view name, Fill fill) {
  const std::vector<Shard> shards = executor.shards(name);
  for (auto shard = shards.begin(); shard != shards.end(); ++shard) {
    const auto same = std::find_if(
        shards.begin(), shard, [&](const Shard& earlier) { return earlier.block == shard->block; });
    if (same != shard) {
      copy_shard(*same, *shard);
      continue;
    }
    shard->memory.map(HostAccess::kWrite,
                      [&](std::span<std::byte> bytes) { fill(shard->block, bytes); });
  }
}

// Converts elements of one of the floating dtypes to another, rounding to nearest, some at a time:
// a block may be most of the memory.
void convert_floats(DType from_dtype, std::span<const std::byte> from, DType to_dtype,
                    std::span<std::byte> to) {
  constexpr size_t kMost = 1 << 16;
  const auto from_bytes = static_cast<size_t>(dtype_bytes(from_dtype));
  const auto to_bytes = static_cast<size_t>(dtype_bytes(to_dtype));
  std::vector<double> values;
  for (size_t at = 0; at < from.size() / from_bytes; at += values.size()) {
    values.resize(std::min(kMost, from.size() / from_bytes - at));
    decode_values(from_dtype, from.data() + at * from_bytes, values);
    encode_values(to_dtype, values, to.data() + at * to_bytes);
  }
}

// Whether values of a checkpoint are converted to the dtype of a run: optimizer state between f32
// and bf16, and all arrays to f64 (Numerics::kF64).
bool converts(DType stored, const Buffer& buffer) {
  const DType kept = buffer.type.dtype;
  if (stored == kept || !is_floating(stored) || !is_floating(kept)) return false;
  if (kept == DType::kF64) return true;
  const bool is_average = buffer.name.starts_with(ema_name(""));
  return buffer.kind == InputKind::kState && !is_average && stored != DType::kF64;
}

// Reads an array. Returns whether its values are converted from another dtype.
bool read_array(Executor& executor, const Checkpoint& checkpoint, const std::string& path,
                const Buffer& buffer) {
  const auto found = checkpoint.entries().find(path);
  const bool converted =
      found != checkpoint.entries().end() && converts(found->second.dtype, buffer);
  const DType kept = buffer.type.dtype, stored = converted ? found->second.dtype : kept;
  checkpoint.expect(path, stored, sizes_of(buffer.type.axes));
  fill_shards(executor, buffer.name, [&](const Region& block, std::span<std::byte> bytes) {
    if (!converted) return checkpoint.read_block(path, block, bytes);
    std::vector<std::byte> read(static_cast<size_t>(block.elements() * dtype_bytes(stored)));
    checkpoint.read_block(path, block, read);
    convert_floats(stored, read, kept, bytes);
  });
  return converted;
}

// Calls visit(part, its first byte in the block, its bytes) for parts of a block along its first
// axis, which are small enough to be held several times: a block may be most of the memory.
template <typename Visit>
void for_each_part(const Region& block, int64_t element_bytes, const Visit& visit) {
  constexpr int64_t kMostElements = int64_t{1} << 20;
  const int64_t rows = block.shape.empty() ? 1 : block.shape.front();
  const int64_t of_row = rows > 0 ? block.elements() / rows : 0;
  const int64_t at_once = std::max<int64_t>(1, of_row > 0 ? kMostElements / of_row : 1);
  for (int64_t row = 0; row < rows; row += at_once) {
    Region part = block;
    const int64_t count = std::min(at_once, rows - row);
    if (!block.shape.empty()) {
      part.origin.front() += row;
      part.shape.front() = count;
    }
    visit(part, static_cast<size_t>(row * of_row * element_bytes),
          static_cast<size_t>(count * of_row * element_bytes));
  }
}

void average_part(const std::vector<Checkpoint>& checkpoints, const std::vector<double>& shares,
                  const std::string& path, DType dtype, const Region& part,
                  std::span<std::byte> bytes) {
  const auto elements = static_cast<size_t>(part.elements());
  std::vector<double> sums(elements, 0.0), values(elements);
  std::vector<std::byte> read(bytes.size());
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    checkpoints[i].read_block(path, part, read);
    decode_values(dtype, read.data(), values);
    for (size_t j = 0; j < elements; ++j) sums[j] += shares[i] * values[j];
  }
  encode_values(dtype, sums, bytes.data());
}

// Process 0 lists the checkpoints, newest first, so that all processes agree.
std::vector<int64_t> agreed_steps(const CheckpointStore& store, ProcessGroup& processes) {
  std::vector<int64_t> steps;
  if (processes.is_first()) steps = store.steps();
  unpack(processes.broadcast(pack(steps), "the checkpoints to resume from"), steps);
  std::ranges::reverse(steps);
  return steps;
}

using Say = std::function<void(const std::string&)>;

// Optimizer state, averages among it, that the checkpoint has and this run does not keep.
std::vector<std::string> unread_state(const Executor& executor, const Checkpoint& checkpoint) {
  std::vector<std::string> unread;
  for (const auto& [path, entry] : checkpoint.entries())
    if (!path.starts_with(kParameters) && !persists(executor, path)) unread.push_back(path);
  return unread;
}

CheckpointInfo restore_step(Executor& executor, const ParameterTable& table,
                            const CheckpointStore& store, int64_t step, const Say& say) {
  const Checkpoint checkpoint = store.open(step);
  const int64_t converted = restore_state(executor, table, checkpoint);
  if (const std::vector<std::string> unread = unread_state(executor, checkpoint); !unread.empty())
    say(fmt::format(
        "note: this run does not keep {} of the optimizer state in the checkpoint of step {}: {}",
        unread.size() == 1 ? "1 array" : fmt::format("{} arrays", unread.size()), step,
        few_names(unread)));
  if (converted > 0)
    say(
        fmt::format("note: {} in the checkpoint of step {} {} another dtype than "
                    "in this run; their values were converted",
                    converted == 1 ? "1 array" : fmt::format("{} arrays", converted), step,
                    converted == 1 ? "has" : "have"));
  return checkpoint.info();
}

// Nullopt if any process finds damage in what it reads; `damage` then describes it.
std::optional<CheckpointInfo> restore_if_whole(Executor& executor, const ParameterTable& table,
                                               const CheckpointStore& store,
                                               ProcessGroup& processes, int64_t step,
                                               const Say& say, std::string* damage) {
  CheckpointInfo info;
  damage->clear();
  try {
    info = restore_step(executor, table, store, step, say);
  } catch (const DamagedCheckpoint& error) {
    *damage = error.what();
  }
  for (const std::string& each : processes.all_gather(*damage, "whether a checkpoint is damaged"))
    if (damage->empty()) *damage = each;
  return damage->empty() ? std::optional(info) : std::nullopt;
}

void set_aside(const CheckpointStore& store, const std::vector<int64_t>& damaged, int64_t good,
               OnDamage on_damage, const std::function<void(const std::string&)>& say) {
  for (const int64_t step : damaged) {
    const std::string where = on_damage == OnDamage::kFallBack
                                  ? fmt::format("kept as {}", store.set_aside(step).string())
                                  : std::string("left in place, because this is a dry run");
    say(fmt::format(
        "warning: resuming from step {} instead of step {}, whose checkpoint is damaged "
        "and {}",
        good, step, where));
  }
}

}  // namespace

std::string parameter_array_path(std::string_view parameter_path) {
  return fmt::format("{}{}", kParameters, parameter_path);
}

void clear_state(Executor& executor) {
  for (const Buffer& buffer : executor.persistent()) {
    if (buffer.kind != InputKind::kState) continue;
    for (const Shard& shard : executor.shards(buffer.name))
      shard.memory.map(HostAccess::kWrite, [](std::span<std::byte> bytes) {
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
      });
  }
}

void start_averages(Executor& executor, const ParameterTable& table) {
  for (const Parameter& parameter : table.parameters()) {
    const std::string average = ema_name(parameter.path);
    if (!persists(executor, average) || !persists(executor, parameter.path)) continue;
    const std::vector<Shard> from = executor.shards(parameter.path), to = executor.shards(average);
    for (size_t i = 0; i < to.size(); ++i) {
      CHECK(from.size() == to.size() && from[i].block == to[i].block,
            "{} and {} are sharded differently", average, parameter.path);
      copy_shard(from[i], to[i]);
    }
  }
}

void initialise_state(Executor& executor, const ParameterTable& table, uint64_t seed, int threads) {
  clear_state(executor);
  for (const Parameter& parameter : table.parameters()) {
    const Buffer* const buffer = find_buffer(executor, parameter.path);
    if (buffer == nullptr) continue;  // No program reads it.
    const DType drawn = parameter.type.dtype, kept = buffer->type.dtype;
    fill_shards(executor, parameter.path, [&](const Region& block, std::span<std::byte> bytes) {
      if (drawn == kept) return initialize(parameter, seed, block, bytes, threads);
      std::vector<std::byte> values(static_cast<size_t>(block.elements() * dtype_bytes(drawn)));
      initialize(parameter, seed, block, values, threads);
      convert_floats(drawn, values, kept, bytes);
    });
  }
  start_averages(executor, table);
}

std::vector<CheckpointArray> checkpoint_arrays(const Executor& executor) {
  std::vector<CheckpointArray> arrays;
  for (const Buffer& buffer : executor.persistent()) {
    if (!is_kept(buffer)) continue;
    for (const Shard& shard : executor.shards_to_read(buffer.name))
      if (shard.owned)
        arrays.push_back({.path = checkpoint_path(buffer),
                          .dtype = buffer.type.dtype,
                          .shape = sizes_of(buffer.type.axes),
                          .block = shard.block,
                          .bytes = shard.memory});
  }
  return arrays;
}

void expect_known_weights(const Checkpoint& checkpoint, const ParameterTable& table) {
  std::vector<std::string> unknown;
  for (const auto& [path, entry] : checkpoint.entries())
    if (path.starts_with(kParameters) && table.find(path.substr(kParameters.size())) == nullptr)
      unknown.push_back(path.substr(kParameters.size()));
  if (!unknown.empty())
    fail(
        "{}: the checkpoint of another model: it has {} that this model does not have: {}; use the "
        "configuration of its run (--config), or take the weights that fit into a new run with "
        "task.train.init_from",
        checkpoint.directory().string(),
        unknown.size() == 1 ? "1 weight" : fmt::format("{} weights", unknown.size()),
        few_names(unknown));
}

int64_t restore_state(Executor& executor, const ParameterTable& table,
                      const Checkpoint& checkpoint) {
  expect_known_weights(checkpoint, table);
  int64_t converted = 0;
  for (const Buffer& buffer : executor.persistent())
    if (is_kept(buffer))
      converted += read_array(executor, checkpoint, checkpoint_path(buffer), buffer);
  return converted;
}

void average_weights(Executor& executor, const ParameterTable& table,
                     const std::vector<Checkpoint>& checkpoints,
                     const std::vector<double>& shares) {
  CHECK(checkpoints.size() == shares.size());
  for (const Checkpoint& checkpoint : checkpoints) expect_known_weights(checkpoint, table);
  for (const Parameter& parameter : table.parameters()) {
    const Buffer* const buffer = find_buffer(executor, parameter.path);
    if (buffer == nullptr) continue;  // No program reads it.
    const std::string path = parameter_array_path(parameter.path);
    const DType dtype = buffer->type.dtype;
    for (const Checkpoint& checkpoint : checkpoints)
      checkpoint.expect(path, dtype, sizes_of(buffer->type.axes));
    fill_shards(executor, parameter.path, [&](const Region& block, std::span<std::byte> bytes) {
      for_each_part(block, dtype_bytes(dtype), [&](const Region& part, size_t begin, size_t size) {
        average_part(checkpoints, shares, path, dtype, part, bytes.subspan(begin, size));
      });
    });
  }
}

LoadedWeights load_weights(Executor& executor, const ParameterTable& table,
                           const Checkpoint& checkpoint, const InitFrom& p) {
  RemappingRules rules{{}, p.ignore_rules, p.safe_load};
  for (const InitRule& rule : p.load_rules) rules.rules.push_back({rule.pattern, rule.source});
  std::vector<std::string> here, there;
  for (const Parameter& parameter : table.parameters()) here.push_back(parameter.path);
  for (const auto& [path, entry] : checkpoint.entries())
    if (path.starts_with(kParameters)) there.push_back(path.substr(kParameters.size()));

  const ErrorContext where("task.train.init_from");
  LoadedWeights loaded{.left_out = there, .initial = here};
  for (const NameMatch& match : match_names(here, there, rules)) {
    const Buffer* const buffer = find_buffer(executor, match.destination);
    CHECK(buffer != nullptr, "no program reads {}", match.destination);
    read_array(executor, checkpoint, parameter_array_path(match.source), *buffer);
    loaded.taken.push_back(fmt::format("{} <- {}", match.destination, match.source));
    std::erase(loaded.left_out, match.source);
    std::erase(loaded.initial, match.destination);
  }
  if (loaded.taken.empty()) fail("no parameter matches load_rules, so nothing would be loaded");
  start_averages(executor, table);
  return loaded;
}

std::optional<RestoredState> restore_newest(Executor& executor, const ParameterTable& table,
                                            const CheckpointStore& store, ProcessGroup& processes,
                                            OnDamage on_damage,
                                            const std::function<void(const std::string&)>& say) {
  const std::vector<int64_t> steps = agreed_steps(store, processes);
  if (steps.empty()) return std::nullopt;
  if (on_damage == OnDamage::kFail)
    return RestoredState{restore_step(executor, table, store, steps[0], say)};
  std::vector<int64_t> damaged;
  for (const int64_t step : steps) {
    std::string damage;
    const auto info = restore_if_whole(executor, table, store, processes, step, say, &damage);
    if (!info) {
      say("warning: " + damage);
      damaged.push_back(step);
      continue;
    }
    if (processes.is_first()) set_aside(store, damaged, step, on_damage, say);
    processes.barrier("setting damaged checkpoints aside");
    return RestoredState{*info, std::ssize(damaged)};
  }
  fail("{}: every checkpoint is damaged (steps {}); start over with --restart",
       store.directory().string(), fmt::join(damaged, ", "));
}

}  // namespace tessera
