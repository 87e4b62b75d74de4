// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: prints what a host's model gets in a step.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "inputs/checked_input.h"
#include "tasks/run/log/console.h"
#include "tasks/run/modes/modes.h"
#include "tasks/task/base_task.h"
#include "tasks/task/step_sizes.h"

namespace tessera {
namespace {

std::string cell(const HostArray& array, int64_t at) {
  const auto i = static_cast<size_t>(at);
  switch (array.dtype) {
    case DType::kF32:
      return fmt::format("{:g}", array.data<float>()[i]);
    case DType::kI32:
      return fmt::format("{}", array.data<int32_t>()[i]);
    case DType::kBool:
      return fmt::format("{}", array.data<uint8_t>()[i]);
    default:
      return "?";
  }
}

// The arrays of a batch whose rows have this many axes beside the batch's; those of tokens in the
// order in which people read them.
std::vector<std::pair<std::string, const HostArray*>> arrays_of_rank(const Batch& batch,
                                                                     size_t rank) {
  static const std::vector<std::string> kOrder = {"ids", "labels", "weights", "segment_ids",
                                                  "segment_pos"};
  std::vector<std::pair<std::string, const HostArray*>> arrays;
  for (const std::string& name : kOrder)
    if (batch.contains(name) && batch.at(name).shape.size() == rank + 1)
      arrays.emplace_back(name, &batch.at(name));
  for (const auto& [name, array] : batch)
    if (array.shape.size() == rank + 1 && !std::ranges::count(kOrder, name))
      arrays.emplace_back(name, &array);
  return arrays;
}

class ShownBatch {
 public:
  ShownBatch(const RunContext& context, const ShowBatchOptions& options)
      : config_(context.config), setting_(context.setting), options_(options) {
    const Template<BaseInput>& input_tpl = input_template();
    const ErrorContext where(options.dataset.empty() ? "input" : options.dataset);
    input_ = make_input(input_tpl);
    const std::vector<TrainPhase> phases = options.dataset.empty()
                                               ? config_.task.instantiate()->train().phases
                                               : std::vector<TrainPhase>{};
    sizes_.emplace(phases, *input_);
    infeed_ = infeed();
    input_->attach(infeed_);
  }

  std::string text() {
    std::optional<Batch> batch;
    for (int64_t step = 0; step <= options_.step; ++step) {
      batch = input_->get_next();
      if (!batch) fail("--step={}: the input ends after {} batches", options_.step, step);
    }
    const StepSize& size = sizes_->at(options_.step);
    sizes_->cut(*batch, size);
    std::string text = heading(*batch, size);
    const std::vector<int64_t> numbers = global_rows(size);
    const int64_t here = batch->begin()->second.shape.at(0);
    for (int64_t row = 0; row < std::min(options_.rows, here); ++row)
      text += row_text(*batch, row, numbers);
    return text;
  }

 private:
  const Template<BaseInput>& input_template() const {
    if (options_.dataset.empty()) return config_.input;
    std::vector<std::string> names;
    for (const auto* const inputs : {&config_.eval_inputs, &config_.decode_inputs}) {
      if (const auto found = inputs->find(options_.dataset); found != inputs->end())
        return found->second;
      for (const auto& [name, unused] : *inputs) names.push_back(name);
    }
    fail("--dataset={}: {} has no such dataset; expected {}{}", options_.dataset,
         setting_.experiment, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
         did_you_mean(options_.dataset, names));
  }

  // What host number `host` of a run of this mesh would get.
  Infeed infeed() const {
    const Mesh mesh = planned_mesh(config_.mesh, options_.hosts * setting_.devices);
    const int64_t devices = mesh.num_devices() / options_.hosts;
    if (devices * options_.hosts != mesh.num_devices())
      fail("--hosts={}: a mesh of {} devices is not divisible by {} hosts", options_.hosts,
           mesh.num_devices(), options_.hosts);
    Infeed infeed = process_infeed(*sizes_, mesh, make_rules(config_.rules), options_.host,
                                   options_.hosts, devices);
    infeed.run_directory = setting_.input_directory;
    return infeed;
  }

  // The numbers in the global batch of this host's rows; of rows that are cut, of the first part.
  std::vector<int64_t> global_rows(const StepSize& size) const {
    std::vector<RowRange> ranges = infeed_.rows;
    for (const BatchSize& each : infeed_.sizes)
      if (each.first_batch <= options_.step) ranges = each.rows;
    std::vector<int64_t> numbers;
    const int64_t parts = size.rows / size.input_rows;
    for (const RowRange& range : ranges)
      for (int64_t row = range.begin * parts; row < range.end * parts; ++row)
        numbers.push_back(row);
    return numbers;
  }

  std::string heading(const Batch& batch, const StepSize& size) const {
    std::vector<std::string> shapes;
    for (const auto& [name, array] : batch)
      shapes.push_back(
          fmt::format("{} {}[{}]", name, dtype_name(array.dtype), fmt::join(array.shape, " ")));
    return fmt::format("{}, step {}, host {} of {}: {} of {} rows\n{}\n", input_->name(),
                       options_.step, options_.host, options_.hosts,
                       batch.begin()->second.shape.at(0), size.rows, fmt::join(shapes, ", "));
  }

  std::string row_text(const Batch& batch, int64_t row, const std::vector<int64_t>& numbers) const {
    std::vector<std::string> of_row;
    const std::vector<std::string> sources = input_->sources();
    for (const auto& [name, array] : arrays_of_rank(batch, 0)) {
      const std::string value = cell(*array, row);
      const size_t source = name == "source" ? std::stoul(value) : sources.size();
      of_row.push_back(
          fmt::format("{} {}", name, source < sources.size() ? sources[source] : value));
    }
    std::string text = fmt::format("\nrow {} of the global batch: {}\n",
                                   numbers.at(static_cast<size_t>(row)), fmt::join(of_row, ", "));
    const auto columns = arrays_of_rank(batch, 1);
    if (columns.empty()) return text;
    const int64_t length = columns[0].second->shape[1];
    std::vector<std::vector<std::string>> table(1);
    table[0].emplace_back("text");
    for (const auto& [name, unused] : columns) table[0].push_back(name);
    for (int64_t at = 0; at < std::min(options_.length, length); ++at) {
      table.emplace_back();
      table.back().push_back(text_of(batch, row * length + at));
      for (const auto& [unused, array] : columns)
        table.back().push_back(array->shape[1] == length ? cell(*array, row * length + at) : "");
    }
    for (const std::string& line : table_lines(table)) text += fmt::format("  {}\n", line);
    return text;
  }

  // The text of an id, in quotation marks; "" if it has none.
  std::string text_of(const Batch& batch, int64_t at) const {
    const auto ids = batch.find("ids");
    if (input_->tokenizer() == nullptr || ids == batch.end()) return "";
    const int32_t id = ids->second.data<int32_t>()[static_cast<size_t>(at)];
    std::string text = printable(input_->tokenizer()->decode({id}));
    for (size_t line = 0; (line = text.find('\n', line)) != std::string::npos; line += 2)
      text.replace(line, 1, "\\n");
    return fmt::format("'{}'", text);
  }

  const ExperimentConfig& config_;
  const RunSetting& setting_;
  ShowBatchOptions options_;
  std::unique_ptr<BaseInput> input_;
  std::optional<StepSizes> sizes_;
  Infeed infeed_;
};

class ShowBatchRun final : public BaseRun {
 public:
  ShowBatchRun(const RunContext& context, const ShowBatchOptions& options)
      : batch_(context, options) {}
  int run() override {
    fmt::print("{}", batch_.text());
    return 0;
  }

 private:
  ShownBatch batch_;
};

}  // namespace

std::string batch_text(const RunContext& context, const ShowBatchOptions& options) {
  return ShownBatch(context, options).text();
}

std::unique_ptr<BaseRun> show_batch_run(const RunContext& context,
                                        const ShowBatchOptions& options) {
  return std::make_unique<ShowBatchRun>(context, options);
}

}  // namespace tessera
