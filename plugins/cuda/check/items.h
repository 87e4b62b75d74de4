// SPDX-License-Identifier: Apache-2.0
// The items of gpu_check: what each of them checks or measures. An item runs in a process of its
// own, because a fault of the GPU ends all work of its process.
#pragma once

#include <cctype>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/devices/device.h"
#include "core/hparams/fields.h"

namespace tessera::cuda {

struct CheckOptions {
  std::filesystem::path output;  // Absolute.
  bool tiny = false;             // Small shapes and models, for the virtual GPU.
  bool campaign = false;         // What is right and how fast, in minutes, on one GPU.

  // A file or folder below the output: of `name` only letters, digits and '_' stay.
  std::filesystem::path place(const std::string& folder, std::string name) const {
    for (char& c : name)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return output / folder / name;
  }
};

inline constexpr const char *kPassed = "passed", *kFailed = "failed", *kNotTested = "not tested";

// A line of a table.
struct Row {
  std::string columns;  // Their names, with '|' between them.
  std::vector<std::string> cells;
  FIELDS(columns, cells)
};

// What an item found, as report.toml has it.
struct Findings {
  int64_t stage = 0;
  std::string name, status = kPassed;
  double seconds = 0.0;
  std::vector<std::string> failures;  // Or the reason why it was not tested.
  std::vector<std::string> notes;     // The item once more, with a feature off; what is at fault.
  std::map<std::string, int64_t> nodes;  // How many each implementation computed.
  std::vector<Row> rows;
  FIELDS(stage, name, status, seconds, failures, notes, nodes, rows)

  static Findings not_tested(const std::string& why) {
    return {.status = kNotTested, .failures = {why}};
  }
  // Adds the message of an exception to the failures.
  void note(const std::string& what, const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      failures.push_back(what + ": " + error.what());
    }
  }
  template <typename... Cells>
  void add_row(const std::string& columns, const Cells&... cells) {
    const auto text = [](const auto& cell) {
      if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(cell)>>)
        return fmt::format("{:.6g}", cell);
      else
        return fmt::format("{}", cell);
    };
    rows.push_back({columns, {text(cells)...}});
  }
};

struct Item {
  int64_t stage = 0;
  std::string name;  // "op rms_norm"
  std::function<Findings()> run;
  int seconds = 300;  // Its process is killed after that.
  // The implementation (kernel.h) that must compute some node of it; otherwise it was not tested.
  std::string tests = {};
  std::string tool = {};  // A tool of compute-sanitizer, which then runs the item.
  std::map<std::string, std::string> environment = {};

  // Returns the line of --list.
  std::string line() const { return fmt::format("{} {}", stage, name); }
};

inline constexpr int kStages = 5;
inline constexpr const char* kCampaignPreset = "preset GPT-2";  // The recipes of a campaign.

// Return the kernels of stages 1 to 3 and 5, and the whole runs of stages 4 and 5. Making a list
// uses no GPU.
std::vector<Item> kernel_items(bool tiny);
std::vector<Item> run_items(const CheckOptions& options);

std::unique_ptr<Device> make_gpu();  // GPU 0.

// Why a library (kernel.h) cannot be used here; "" if it can.
std::string why_no_library(const std::string& name);

}  // namespace tessera::cuda
