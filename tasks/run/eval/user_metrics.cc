// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/eval/user_metrics.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/message.h"
#include "inputs/checked_input.h"

namespace tessera {
namespace {

size_t row_bytes(const HostArray& array) {
  auto bytes = static_cast<size_t>(dtype_bytes(array.dtype));
  for (size_t i = 1; i < array.shape.size(); ++i) bytes *= static_cast<size_t>(array.shape[i]);
  return bytes;
}

// Copies the rows that one process sent to their places.
void place_rows(const std::string& text, Batch* batch) {
  MessageReader message(text);
  std::vector<RowRange> ranges;
  message.take(ranges);
  for (auto& [name, array] : *batch) {
    const auto size = static_cast<int64_t>(row_bytes(array));
    std::vector<std::byte> rows;
    message.take(rows);
    auto from = rows.begin();
    for (const RowRange& range : ranges) {
      CHECK(size * range.end <= std::ssize(array.bytes) &&
            size * range.size() <= rows.end() - from);
      std::copy_n(from, size * range.size(), array.bytes.begin() + size * range.begin);
      from += size * range.size();
    }
  }
}

}  // namespace

void check_metric_names(const std::string& function, const std::vector<std::string>& names) {
  std::set<std::string> known = {""};
  for (const std::string& name : names)
    if (name.find('/') != std::string::npos || !known.insert(name).second)
      fail("{}: returned the name '{}'; expected different names without '/'", function, name);
}

void check_values(const std::string& function, const std::vector<std::string>& names,
                  const std::map<std::string, double>& values) {
  for (const std::string& name : names)
    if (!values.contains(name)) fail("{} lacks '{}', which names() lists", function, name);
  for (const auto& [name, value] : values)
    if (std::isnan(value) || std::ranges::find(names, name) == names.end())
      fail("{}: '{}' is {}, expected a number for each of names() and no other{}", function, name,
           plain_nan(value), did_you_mean(name, names));
}

UserMetrics<ScoreMetric> make_score_metrics(const EvalHParams& p) {
  return {"score_metrics", p.score_metrics};
}

UserMetrics<PredictMetric> make_predict_metrics(const EvalHParams& p) {
  return {"predict_metrics", p.predict_metrics};
}

Batch gather_rows(const Batch& local, const std::vector<RowRange>& ranges, int64_t global_rows,
                  ProcessGroup& processes) {
  if (processes.size() == 1) return local;
  Batch batch;
  MessageWriter mine;
  mine.add(ranges);
  for (const auto& [name, array] : local) {
    CHECK(!array.axes.empty() && array.axes[0] == "batch", "{} has no rows", name);
    HostArray whole{array.dtype, array.axes, array.shape, {}};
    whole.shape[0] = global_rows;
    whole.bytes.resize(row_bytes(array) * static_cast<size_t>(global_rows));
    batch.emplace(name, std::move(whole));
    mine.add(array.bytes);
  }
  for (const std::string& text : processes.all_gather(mine.text(), "the rows of a batch"))
    place_rows(text, &batch);
  return batch;
}

Batch row_of_batch(const Batch& batch, int64_t row) {
  Batch one;
  for (const auto& [name, array] : batch) {
    const size_t size = row_bytes(array);
    const auto begin =
        array.bytes.begin() + static_cast<std::ptrdiff_t>(size * static_cast<size_t>(row));
    one.emplace(name, HostArray{array.dtype,
                                {array.axes.begin() + 1, array.axes.end()},
                                {array.shape.begin() + 1, array.shape.end()},
                                {begin, begin + static_cast<std::ptrdiff_t>(size)}});
  }
  return one;
}

Predictions::Predictions(ModelSession& session, const std::string& dataset,
                         const Template<BaseInput>& input_tpl, const EvalHParams& p,
                         const std::filesystem::path& run_directory)
    : p_(p), decode_(p.decode.value_or(session.task().decode())) {
  check(decode_, fmt::format("eval.datasets.{}.decode", dataset));
  ProcessGroup& processes = session.processes();
  const ErrorContext where("eval_inputs." + dataset);
  input_ = make_input(input_tpl);
  const DecodeShare share = decode_share(session);
  input_->attach(share.infeed(*input_, run_directory));
  if (input_->repeats() && decode_.num_examples < 0)
    fail(
        "predict_metrics read the whole set, but its input repeats without end; set "
        "eval.datasets.{}.decode.num_examples",
        dataset);
  text_.emplace(input_->tokenizer(), input_->vocab_size(), input_->documents_begin_with_start_id());
  ExampleSet set = read_examples(*input_, decode_, *text_, share, processes);
  examples_ = std::move(set.examples);
  const int64_t longest = processes.all_reduce_max(longest_prompt(examples_), "what to decode");
  decoding_.emplace(session, decode_, set.total, longest, "eval/" + dataset);
}

void Predictions::begin() { decoding_->begin(&*text_); }

int Predictions::run(ProcessGroup& processes, const StopSignal* stop,
                     std::map<std::string, double>* metrics) {
  std::vector<DecodedExample> examples = examples_;
  if (const int signal = decoding_->decode(&examples, stop); signal != 0) return signal;
  std::map<std::string, double> values;
  if (processes.is_first()) {
    UserMetrics<PredictMetric> own = make_predict_metrics(p_);
    for (const DecodedExample& example : examples) own.add(example);
    values = own.values();
  }
  unpack(processes.broadcast(pack(values), "metrics of generated text"), values);
  metrics->merge(values);
  return 0;
}

}  // namespace tessera
