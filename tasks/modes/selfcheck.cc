// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/selfcheck.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/case_check.h"
#include "core/check/op_cases.h"
#include "tasks/modes/selfcheck_steps.h"

namespace tessera {
namespace {

class SelfcheckClock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The cases of each family, families in the order of their first cases.
std::vector<std::pair<std::string, std::vector<OpCase>>> cases_by_family() {
  std::vector<std::pair<std::string, std::vector<OpCase>>> families;
  for (OpCase& row : all_op_cases()) {
    const std::string name = family_of(row);
    auto family = std::find_if(families.begin(), families.end(),
                               [&](const auto& each) { return each.first == name; });
    if (family == families.end()) family = families.insert(families.end(), {name, {}});
    family->second.push_back(std::move(row));
  }
  return families;
}

// Adds to the count of cases and to the largest error.
std::string check_family(const std::vector<OpCase>& rows, Device& device, int64_t* cases,
                         double* error) {
  for (const OpCase& row : rows) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      ++*cases;
      try {
        const CaseReport report = check_case(row, dtype, device);
        if (!report.mismatch.empty()) return fmt::format("op {}: {}", row.op, report.mismatch);
        *error = std::max(*error, report.error);
      } catch (const Error& problem) {
        return fmt::format("op {}: {}: {}", row.op, case_name(row, dtype), problem.what());
      }
    }
  }
  return "";
}

std::string check_kernels(const SelfcheckOptions& options, Device& device) {
  for (const auto& [family, rows] : cases_by_family()) {
    const SelfcheckClock clock;
    int64_t cases = 0;
    double error = 0.0;
    const std::string problem = check_family(rows, device, &cases, &error);
    if (!problem.empty()) return problem;
    options.say(fmt::format("{:<20} {:>4} cases, largest error {:.2f} of its tolerance, {:.1f} s",
                            family, cases, error, clock.seconds()));
  }
  return "";
}

// Of the same steps on one thread, on several, and on several again.
std::string check_steps(const SelfcheckOptions& options) {
  const int several = std::max(2, options.threads);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const SelfcheckClock clock;
    const auto steps_on = [&](int threads) {
      return selfcheck_steps(*options.make_device(threads), dtype);
    };
    const StepBits one = steps_on(1);
    const std::string name = fmt::format("training steps in {}", dtype_name(dtype));
    for (const double value : one.losses)
      if (!std::isfinite(value)) return fmt::format("{}: the loss is {}", name, value);
    std::string difference = bit_difference(steps_on(1), one);
    if (!difference.empty()) return fmt::format("{}, run twice on 1 thread: {}", name, difference);
    for (const std::string again : {"", ", run again"}) {
      difference = bit_difference(steps_on(several), one);
      if (!difference.empty())
        return fmt::format("{} on {} threads{}, against 1 thread: {}", name, several, again,
                           difference);
    }
    options.say(fmt::format("{:<24}  the same bits on 1 and {} threads, and run twice, {:.1f} s",
                            name, several, clock.seconds()));
  }
  return "";
}

}  // namespace

std::string selfcheck(const SelfcheckOptions& options) {
  const SelfcheckClock clock;
  {
    const std::unique_ptr<Device> device = options.make_device(options.threads);
    options.say("checking " + device->description());
    std::string problem = check_kernels(options, *device);
    if (!problem.empty()) return problem;
  }
  std::string problem = check_steps(options);
  if (problem.empty()) options.say(fmt::format("passed ({:.1f} s)", clock.seconds()));
  return problem;
}

}  // namespace tessera
