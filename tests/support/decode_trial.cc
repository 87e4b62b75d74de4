// SPDX-License-Identifier: Apache-2.0
#include "tests/support/decode_trial.h"

#include <algorithm>
#include <span>

#include "tasks/run/session/model_state.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

void write(Executor& executor, int program, std::string_view name,
           const std::vector<int32_t>& values) {
  executor.write_input(program, name, std::as_bytes(std::span(values)));
}

// Biases, too, which begin as zeros.
void draw_weights(Executor& executor, const BaseTask& task) {
  ParameterTable table;
  for (Parameter each : task.model().parameters().parameters()) {
    if (each.init.kind == InitKind::kConstant && each.init.scale == 0.0)
      each.init = {InitKind::kGaussian, 0.1};
    table.add(std::move(each));
  }
  initialise_state(executor, table, static_cast<uint64_t>(task.train().seed), 1);
}

}  // namespace

DecodeTrial::DecodeTrial(const BaseTask& task, const DecodeSetting& setting,
                         const std::vector<int64_t>& chunks, int threads)
    : setting_(setting), lengths_(static_cast<size_t>(setting.batch), 0) {
  const int64_t count = setting.mesh.num_devices();
  devices_ = make_test_devices(count, threads);
  communicator_ = make_test_communicator(
      {.local_devices = count, .transport = nullptr, .timeout = std::chrono::minutes(2)});
  executor_ = std::make_unique<Executor>(pointers(devices_), *communicator_);
  CompileOptions options;
  options.mesh = setting.mesh;
  options.verify_passes = true;
  for (const int64_t chunk : chunks) {
    setting_.seq = chunk;
    programs_[chunk] =
        executor_->add_program(task.decode_graph(setting_, Weights::kTrained), options);
  }
  reorder_ = executor_->add_program(task.reorder_cache_graph(setting_), options);
  const Graph casts = task.cast_weights_graph(setting_, Weights::kTrained);
  const int cast = casts.outputs().empty() ? -1 : executor_->add_program(casts, options);
  executor_->allocate();
  draw_weights(*executor_, task);
  if (cast >= 0) executor_->run(cast);
}

std::vector<std::vector<float>> DecodeTrial::take(int64_t chunk, const TokenRows& tokens) {
  const auto batch = static_cast<size_t>(setting_.batch);
  REQUIRE(tokens.size() == batch);
  std::vector<int32_t> ids(batch * static_cast<size_t>(chunk), 1), starts, last;
  for (size_t row = 0; row < batch; ++row) {
    REQUIRE(static_cast<int64_t>(tokens[row].size()) <= chunk);
    std::copy(tokens[row].begin(), tokens[row].end(),
              ids.begin() + static_cast<int64_t>(row) * chunk);
    starts.push_back(static_cast<int32_t>(lengths_[row]));
    last.push_back(static_cast<int32_t>(tokens[row].size()) - 1);
    lengths_[row] += static_cast<int64_t>(tokens[row].size());
  }
  const int program = programs_.at(chunk);
  write(*executor_, program, names::kIds, ids);
  write(*executor_, program, names::kStarts, starts);
  std::vector<int32_t> known;
  for (const int64_t length : lengths_) known.push_back(static_cast<int32_t>(length));
  const auto& inputs = executor_->plan(program).inputs;
  for (const auto& [name, values] : {std::pair(names::kLast, last), {names::kTokens, known}})
    if (std::ranges::find(inputs, name, &Placement::name) != inputs.end())
      write(*executor_, program, name, values);
  executor_->run(program);
  const Type& type = executor_->plan(program).outputs.front().type;
  const auto vocab = static_cast<size_t>(type.axis("vocab").size);
  std::vector<float> all(batch * vocab);
  executor_->read_output(program, names::kLogits, std::as_writable_bytes(std::span(all)));
  std::vector<std::vector<float>> rows;
  for (size_t row = 0; row < batch; ++row)
    rows.emplace_back(all.begin() + static_cast<int64_t>(row * vocab),
                      all.begin() + static_cast<int64_t>((row + 1) * vocab));
  return rows;
}

void DecodeTrial::forget() { std::fill(lengths_.begin(), lengths_.end(), 0); }

void DecodeTrial::reorder(const std::vector<int32_t>& parents) {
  write(*executor_, reorder_, names::kParents, parents);
  executor_->run(reorder_);
  const std::vector<int64_t> before = lengths_;
  const auto rows = static_cast<size_t>(setting_.rows_per_prompt);
  for (size_t row = 0; row < parents.size(); ++row)
    lengths_[row] = before[row / rows * rows + static_cast<size_t>(parents[row])];
}

std::vector<std::vector<float>> whole_logits(const BaseTask& task, int64_t seq,
                                             const TokenRows& rows) {
  const auto device = make_test_device(1);
  Executor executor(*device);
  Batch batch;
  for (const char* name : {"ids", "segment_ids", "segment_pos"})
    batch[name] = HostArray{DType::kI32, {"batch", "seq"}, {1, seq}, {}};
  CompileOptions options;
  options.mesh = Mesh::standard({1, 1, 1});  // Models may name these axes in layouts.
  const int program = executor.add_program(
      task.logits_graph({options.mesh, {}, batch}, Weights::kTrained), options);
  executor.allocate();
  draw_weights(executor, task);
  std::vector<std::vector<float>> result;
  for (const std::vector<int32_t>& row : rows) {
    std::vector<int32_t> ids = row, ones(static_cast<size_t>(seq), 1), positions;
    ids.resize(static_cast<size_t>(seq), 0);
    for (int32_t i = 0; i < seq; ++i) positions.push_back(i);
    for (const Placement& input : executor.plan(program).inputs) {
      if (input.kind != InputKind::kBatch) continue;
      write(executor, program, input.name,
            input.name == "batch/ids"           ? ids
            : input.name == "batch/segment_ids" ? ones
                                                : positions);
    }
    executor.run(program);
    const Type& type = executor.plan(program).outputs.front().type;
    std::vector<float>& logits =
        result.emplace_back(std::vector<float>(static_cast<size_t>(type.elements())));
    executor.read_output(program, names::kLogits, std::as_writable_bytes(std::span(logits)));
  }
  return result;
}

}  // namespace tessera
