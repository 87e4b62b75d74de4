// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/journal.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

constexpr int64_t kVersion = 1;
constexpr const char* kVersionKey = "tessera_sweep";

std::string trial_json(const TrialRecord& record) {
  JsonLine settings, line;
  for (const TrialSetting& setting : record.trial.settings)
    settings.add(setting.path, setting.value);
  line.add("trial", record.trial.number)
      .add("directory", record.trial.directory())
      .add("state", enum_name(record.state))
      .add_raw("settings", settings.text());
  if (record.score)
    line.add("step", record.score->step)
        .add("final", record.score->final)
        .add("best", record.score->best)
        .add("best_step", record.score->best_step);
  line.add("seconds", record.seconds);
  if (!record.reason.empty()) line.add("reason", valid_utf8(record.reason));
  return line.text();
}

template <NamedEnum E>
E named(const Json& json) {
  std::vector<std::string> names;
  for (const auto& row : enum_names(E{})) {
    if (row.name == json.as_string()) return row.value;
    names.emplace_back(row.name);
  }
  fail("{} is '{}', expected one of {}", json.where(), json.as_string(), fmt::join(names, ", "));
}

TrialRecord read_trial(const Json& json) {
  TrialRecord record;
  record.trial.number = json.at("trial").as_integer();
  for (const auto& [path, value] : json.at("settings").as_object())
    record.trial.settings.push_back({path, value.as_string()});
  record.state = named<TrialState>(json.at("state"));
  record.seconds = json.at("seconds").as_number();
  if (const Json* reason = json.find("reason")) record.reason = reason->as_string();
  if (json.find("final") != nullptr)
    record.score = {.step = json.at("step").as_integer(),
                    .final = json.at("final").as_number(),
                    .best_step = json.at("best_step").as_integer(),
                    .best = json.at("best").as_number()};
  return record;
}

}  // namespace

void write_sweep_record(const std::filesystem::path& file, const SweepRecord& record) {
  std::vector<std::string> trials;
  for (const TrialRecord& trial : record.trials) trials.push_back("\n" + trial_json(trial));
  const std::string text = JsonLine()
                               .add(kVersionKey, kVersion)
                               .add("experiment", record.experiment)
                               .add("metric", record.metric.name)
                               .add("goal", enum_name(record.metric.goal))
                               .add_raw("trials", fmt::format("[{}]", fmt::join(trials, ",")))
                               .text();
  write_file_atomically(file, text + "\n");
}

SweepRecord read_sweep_record(const std::filesystem::path& file) {
  const Json json = parse_json(read_file(file), file.string());
  const Json* version = json.is_object() ? json.find(kVersionKey) : nullptr;
  if (version == nullptr || !version->is_integer() || version->as_integer() != kVersion)
    fail("{} is not a sweep.json of this version; give another --job_log_dir, or --restart",
         file.string());
  SweepRecord record{.experiment = json.at("experiment").as_string(),
                     .metric = {json.at("metric").as_string(), named<SweepGoal>(json.at("goal"))},
                     .trials = {}};
  for (const Json& trial : json.at("trials").as_array()) record.trials.push_back(read_trial(trial));
  return record;
}

std::vector<TrialRecord> continued(const std::vector<SweepTrial>& trials,
                                   const SweepRecord& before) {
  constexpr std::string_view kAdvice =
      "give the same space to go on, another --job_log_dir for another sweep, or --restart to set "
      "this one aside";
  std::vector<TrialRecord> records;
  for (const SweepTrial& trial : trials) {
    TrialRecord record;
    const size_t index = records.size();
    if (index < before.trials.size()) {
      record = before.trials[index];
      if (record.trial.settings != trial.settings)
        fail("trial {} of the sweep in this directory is {}, but now it would be {}; {}",
             trial.number, record.trial.text(), trial.text(), kAdvice);
    }
    record.trial = trial;
    records.push_back(std::move(record));
  }
  if (before.trials.size() > trials.size())
    fail("the sweep in this directory has {} trials, but now it would have {}; {}",
         before.trials.size(), trials.size(), kAdvice);
  return records;
}

std::vector<const TrialRecord*> ranked(const SweepRecord& record) {
  std::vector<const TrialRecord*> order;
  for (const TrialRecord& trial : record.trials) order.push_back(&trial);
  const auto is_complete = [](const TrialRecord& trial) {
    return trial.state == TrialState::kDone && trial.score.has_value();
  };
  std::ranges::stable_sort(order, [&](const TrialRecord* a, const TrialRecord* b) {
    if (is_complete(*a) != is_complete(*b)) return is_complete(*a);
    if (!is_complete(*a)) return false;
    return record.metric.goal == SweepGoal::kMin ? a->score->final < b->score->final
                                                 : a->score->final > b->score->final;
  });
  return order;
}

}  // namespace tessera
