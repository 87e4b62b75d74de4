// SPDX-License-Identifier: Apache-2.0
// The items of gpu_check: what each of them checks or measures. An item runs in a process of its
// own, because a fault of the GPU ends all work of its process.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/check/op_cases.h"
#include "core/devices/device.h"

namespace tessera::cuda {

struct CheckOptions {
  std::filesystem::path output;  // Absolute.
  bool tiny = false;             // Small shapes and models, for the virtual GPU.
};

// A line of a table: names and values of its cells.
using Row = std::vector<std::pair<std::string, std::variant<std::string, double>>>;

struct Findings {
  std::vector<std::string> failures;
  std::vector<Row> rows;
  std::string not_tested;  // Why the item cannot run here; or empty.
};

struct Item {
  int stage = 0;
  std::string name;  // "op rms_norm"
  std::function<Findings()> run;
  int seconds = 300;       // Its process is killed after that.
  std::string needs = {};  // An item that must have passed.
  // The implementation (kernel.h) that must compute some node of it; otherwise it was not tested.
  std::string tests = {};
  std::string tool = {};  // Of compute-sanitizer, which then runs the item.
  std::map<std::string, std::string> environment = {};
};

inline constexpr int kStages = 5;
std::string stage_title(int stage);  // "kernels"

// In the order in which they run. None is skipped here: making the list uses no GPU.
std::vector<Item> all_items(const CheckOptions& options);

// Those of one stage or two, each in a file <name>_items.cc.
std::vector<Item> device_items();  // Also under compute-sanitizer.
std::vector<Item> kernel_items(const CheckOptions& options);
std::vector<Item> training_items(const CheckOptions& options);
std::vector<Item> timing_items(const CheckOptions& options);

std::unique_ptr<Device> make_gpu();  // GPU 0.

// Each case in f32 and bf16 on GPU 0: a failure for each mismatch, and the largest error.
Findings check_cases(const std::vector<OpCase>& cases);

// Why a library of the item "versions" cannot be used here; "" if it can.
std::string why_no_library(const std::string& name);

// Adds the message of an exception to the failures.
void note_failures(Findings& findings, const std::string& what,
                   const std::function<void()>& action);

}  // namespace tessera::cuda
