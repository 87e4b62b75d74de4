// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trial_record.h"

#include <algorithm>
#include <exception>
#include <fstream>

#include "core/base/printable.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run_directory/run_config.h"

namespace tessera {

int64_t SweepRecord::count(TrialState state) const {
  return std::ranges::count(trials, state, &TrialRecord::state);
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

std::vector<std::string> last_lines(const std::filesystem::path& file, size_t lines,
                                    size_t columns) {
  constexpr std::streamoff kBytesOfTail = 16384;  // Of the end of the file that are read.
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : 0;
  if (size <= 0) return {};
  stream.seekg(std::max<std::streamoff>(0, size - kBytesOfTail));
  std::vector<std::string> last;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty()) continue;
    const std::string shown = printable(line);
    last.push_back(shown.size() <= columns ? shown : printable(shown.substr(0, columns - 1)) + "…");
    if (last.size() > lines) last.erase(last.begin());
  }
  return last;
}

LogEnd end_of_log(const std::filesystem::path& run_directory) {
  constexpr size_t kLongestLine = 16384;
  LogEnd end;
  try {
    const std::vector<std::string> last =
        last_lines(run_directory / "metrics.jsonl", 1, kLongestLine);
    if (last.empty()) return {};
    const Json line = parse_json(last[0], "metrics.jsonl");
    end.step = line.at("step").as_integer();
    if (const Json* event = line.find("event")) end.event = event->as_string();
    if (const Json* reason = line.find("reason")) end.reason = reason->as_string();
  } catch (const std::exception&) {  // The run is writing the line, or was killed meanwhile.
    return {};
  }
  return end;
}

double done_part(const std::filesystem::path& run_directory) {
  try {
    const std::filesystem::path config = run_directory / "hparams.toml";
    const int64_t steps = num_train_steps(parse_toml(read_file(config), config.string()));
    const auto step = static_cast<double>(end_of_log(run_directory).step);
    return steps > 0 ? std::clamp(step / static_cast<double>(steps), 0.0, 1.0) : 0.0;
  } catch (const std::exception&) {  // The trial has not written it yet.
    return 0.0;
  }
}

}  // namespace tessera
