// SPDX-License-Identifier: Apache-2.0
// The report of gpu_check: report.json, rewritten after each item, so that the next call resumes
// where this one stopped; and the same as text.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "plugins/cuda/check/items.h"

namespace tessera::cuda {

// An item that failed, once more with a feature turned off.
struct Retry {
  std::string change;  // "CUDA graph off (TESSERA_CUDA_GRAPH=off)"
  std::string status;
};

struct Result {
  int stage = 0;
  std::string name;
  std::string status;  // passed, failed or not tested.
  double seconds = 0.0;
  std::vector<std::string> failures;  // Of an item that was not tested: the reason.
  std::vector<Row> rows;
  std::map<std::string, double> nodes;  // How many each implementation computed.
  std::vector<Retry> retries;
  std::string verdict;  // Which feature is at fault, as far as the retries tell.
  std::string log;      // The end of the item's output, if it failed.
};

std::string result_json(const Result& result);  // One line.
Result parse_result(const Json& json);

class Report {
 public:
  // Continues the report in this folder, or begins one. Error if it is another program's, or of
  // other options: `about` is what must agree.
  Report(const std::filesystem::path& folder, std::string about);

  const std::vector<Result>& results() const { return results_; }
  const Result* find(std::string_view item) const;
  // Forgets items that failed or were not tested, so that they run again.
  void forget_what_did_not_pass();
  // Notes that an item runs now. How often it was begun without an end: 1 for the first time.
  int begin(const std::string& item);
  void add(Result result);
  void save() const;

 private:
  std::filesystem::path file_;
  std::string about_;
  std::string running_;
  int attempts_ = 0;
  std::vector<Result> results_;
};

// Numbers of items by stage and of nodes by implementation, what failed, and the measurements of
// stage 5 or, with `whole`, of all.
std::string report_text(const Report& report, const std::vector<Item>& items, bool whole);

}  // namespace tessera::cuda
