// SPDX-License-Identifier: Apache-2.0
#include "tasks/model_state.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/runtime/name_rules.h"
#include "layers/initialize.h"
#include "tasks/learner.h"

namespace tessera {
namespace {

constexpr std::string_view kParameters = "params/";

std::string checkpoint_path(const Buffer& buffer) {
  return buffer.kind == InputKind::kParameter ? std::string(kParameters) + buffer.name
                                              : buffer.name;
}

std::vector<int64_t> shape_of(const Type& type) {
  std::vector<int64_t> shape;
  for (const Axis& axis : type.axes) shape.push_back(axis.size);
  return shape;
}

bool persists(const Executor& executor, std::string_view name) {
  const auto& buffers = executor.persistent();
  return std::any_of(buffers.begin(), buffers.end(),
                     [&](const Buffer& buffer) { return buffer.name == name; });
}

// Averages of weights begin as the weights.
void start_averages(Executor& executor, const ParameterTable& table) {
  for (const Parameter& parameter : table.parameters())
    if (persists(executor, ema_name(parameter.path)) && persists(executor, parameter.path))
      executor.write_state(ema_name(parameter.path), executor.host_view(parameter.path));
}

}  // namespace

void initialise_state(Executor& executor, const ParameterTable& table, uint64_t seed, int threads) {
  for (const Buffer& buffer : executor.persistent()) {
    const std::span<std::byte> bytes = executor.host_view(buffer.name);
    if (buffer.kind == InputKind::kState) std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
  for (const Parameter& parameter : table.parameters())
    if (persists(executor, parameter.path))  // Else no program reads it.
      initialize(parameter, seed, executor.host_view(parameter.path), threads);
  start_averages(executor, table);
}

std::vector<CheckpointArray> checkpoint_arrays(Executor& executor) {
  std::vector<CheckpointArray> arrays;
  for (const Buffer& buffer : executor.persistent())
    arrays.push_back({.path = checkpoint_path(buffer),
                      .dtype = buffer.type.dtype,
                      .shape = shape_of(buffer.type),
                      .bytes = executor.host_view(buffer.name)});
  return arrays;
}

void restore_state(Executor& executor, const Checkpoint& checkpoint) {
  for (const Buffer& buffer : executor.persistent())
    checkpoint.read(checkpoint_path(buffer), buffer.type.dtype, shape_of(buffer.type),
                    executor.host_view(buffer.name));
}

std::vector<std::string> load_weights(Executor& executor, const ParameterTable& table,
                                      const Checkpoint& checkpoint, const InitFrom& p) {
  NameRules rules{{}, p.ignore_rules, p.safe_load};
  for (const InitRule& rule : p.load_rules) rules.rules.push_back({rule.pattern, rule.source});
  std::vector<std::string> here, there, taken;
  for (const Parameter& parameter : table.parameters()) here.push_back(parameter.path);
  for (const auto& [path, entry] : checkpoint.entries())
    if (path.starts_with(kParameters)) there.push_back(path.substr(kParameters.size()));

  const ErrorContext where("task.train.init_from");
  for (const NameMatch& match : match_names(here, there, rules)) {
    const Type& type = table.find(match.destination)->type;
    checkpoint.read(std::string(kParameters) + match.source, type.dtype, shape_of(type),
                    executor.host_view(match.destination));
    taken.push_back(fmt::format("{} <- {}", match.destination, match.source));
  }
  if (taken.empty()) fail("no parameter is matched by load_rules, so nothing would be loaded");
  start_averages(executor, table);
  return taken;
}

}  // namespace tessera
