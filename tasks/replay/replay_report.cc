// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/replay_report.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/ranges.h>

#include "core/compile/numerics.h"
#include "core/hparams/fields.h"

namespace tessera {
namespace {

constexpr size_t kMostFollowing = 5;  // Launches after the first that are described,
constexpr size_t kMostSeparate = 20;  // or launches that were compared each on its own.

class ComparisonText {
 public:
  explicit ComparisonText(const ComparedLaunches& launches) : launches_(launches) {}

  std::string text() {
    const auto& differences = launches_.differences;
    if (differences.empty()) return equal();
    if (launches_.inputs == LaunchInputs::kOther) return separate();
    const LaunchDifference& first = differences.front();
    text_ = "first difference: " + described(first);
    text_ += "  " + cause(first) + "\n";
    following();
    return text_;
  }

 private:
  std::string equal() const {
    const std::string what =
        launches_.tolerance == 0
            ? std::string("wrote the same bits")
            : fmt::format("wrote the same within a tolerance of {:g}", launches_.tolerance);
    return fmt::format("equal: all {} launches {} on both sides\n", launches_.compared, what);
  }

  const LaunchList& list_of(const LaunchDifference& difference) const {
    return *launches_.lists[static_cast<size_t>(difference.device)];
  }
  std::string on_device(const LaunchDifference& difference) const {
    return launches_.lists.size() == 1 ? "" : fmt::format(" on device {}", difference.device);
  }

  std::string described(const LaunchDifference& difference) const {
    const LaunchList& list = list_of(difference);
    const ListedLaunch& launch = list.launch(difference.launch);
    std::string text = launch_line(launch, list.launches().size()) + on_device(difference) + "\n";
    text += "  " + place_line(launch) + "\n";
    for (const OutputDifference& output : difference.outputs) {
      const Type& type = launch.graph->type(launch.node->outputs[output.output]);
      text += fmt::format("  output {}, {}:\n    ", output.output, type.text_sized());
      text += output.values ? text_of(*output.values) + "\n    " + extent_of(*output.values) + "\n"
                            : std::string("its hash differs; the other side has no values\n");
    }
    return text;
  }

  std::string cause(const LaunchDifference& first) const {
    if (first.inputs.empty()) return "its inputs are equal: this launch makes the difference";
    std::vector<std::string> names;
    const ListedLaunch& launch = list_of(first).launch(first.launch);
    for (const size_t input : first.inputs) names.push_back(operand_name(launch, input));
    const std::string which = fmt::format("input {} differs", fmt::join(names, ", "));
    if (launches_.tolerance > 0)
      return which + ": the tolerance has hidden how it came to that; lower it to see";
    if (launches_.trained_steps > 0)
      return which +
             ", though no launch before wrote it:\n  the steps that were trained before differ, "
             "or memory was overwritten; replay an earlier step";
    return which +
           ", though no launch before wrote it differently:\n"
           "  another launch has overwritten this memory, or the two sides began "
           "differently";
  }

  void following() {
    const auto& differences = launches_.differences;
    const size_t more = differences.size() - 1;
    if (more == 0) {
      text_ += "no other launch differs\n";
      return;
    }
    text_ += fmt::format("of {} launches {} more differ, next:\n", launches_.compared, more);
    for (size_t i = 1; i <= std::min(more, kMostFollowing); ++i) {
      const LaunchDifference& difference = differences[i];
      const ListedLaunch& launch = list_of(difference).launch(difference.launch);
      text_ += fmt::format("  {}{}\n    {}\n    {}\n",
                           launch_line(launch, list_of(difference).launches().size()),
                           on_device(difference), place_line(launch), extent(difference));
    }
  }

  // How much of the outputs of a launch differs.
  static std::string extent(const LaunchDifference& difference) {
    std::vector<std::string> outputs;
    double relative = 0;
    for (const OutputDifference& output : difference.outputs) {
      if (!output.values) continue;
      outputs.push_back(fmt::format("{} of {}", output.values->different, output.values->elements));
      relative = std::max(relative, output.values->largest_relative);
    }
    const std::string what = outputs.empty() ? std::string("its hash differs")
                                             : fmt::format("{} elements differ, relative {:.3g}",
                                                           fmt::join(outputs, " and "), relative);
    return fmt::format("{}; {}", what,
                       difference.inputs.empty() ? "its inputs are equal" : "so do its inputs");
  }

  std::string separate() {
    const auto& differences = launches_.differences;
    text_ = fmt::format("{} of {} launches differ, each with the inputs of the other side:\n",
                        differences.size(), launches_.compared);
    for (size_t i = 0; i < std::min(differences.size(), kMostSeparate); ++i)
      text_ += described(differences[i]);
    if (differences.size() > kMostSeparate)
      text_ += fmt::format("and {} more\n", differences.size() - kMostSeparate);
    return text_;
  }

  const ComparedLaunches& launches_;
  std::string text_;
};

bool same_number(double a, double b, double tolerance) {
  if (std::isnan(a) && std::isnan(b)) return true;
  if (tolerance == 0) return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

}  // namespace

std::string comparison_text(const ComparedLaunches& launches) {
  return ComparisonText(launches).text();
}

std::string numbers_text(const StepNumbers& here, const std::optional<StepNumbers>& there,
                         const std::optional<StepNumbers>& recorded) {
  std::string text = fmt::format("{:<15}{:<18}{:<18}", "", "loss", "gradient norm");
  const auto row = [&text](std::string_view name, const StepNumbers& numbers) {
    text += fmt::format("\n{:<15}{:<18.9g}{:<18.9g}", name, numbers.loss, numbers.grad_norm);
  };
  row("here", here);
  if (there) row("there", *there);
  if (recorded) row("metrics.jsonl", *recorded);
  std::string trimmed;  // Without spaces at the ends of lines.
  for (const char c : text + "\n") {
    if (c == '\n') trimmed.erase(trimmed.find_last_not_of(' ') + 1);
    trimmed += c;
  }
  return trimmed;
}

bool same_numbers(const StepNumbers& a, const StepNumbers& b, double tolerance) {
  return same_number(a.loss, b.loss, tolerance) && same_number(a.grad_norm, b.grad_norm, tolerance);
}

std::string program_difference(const RecordingHeader& here, const RecordingHeader& there) {
  if (here.step != there.step)
    return fmt::format("it is of step {}, expected step {}", there.step, here.step);
  if (here.experiment != there.experiment)
    return fmt::format("it is of {}, expected {}", there.experiment, here.experiment);
  const bool is_mesh_invariant =
      here.numerics == there.numerics && here.numerics == enum_name(Numerics::kMeshInvariant);
  if (here.mesh != there.mesh)
    return is_mesh_invariant ? ""
                             : fmt::format(
                                   "its mesh is {}, expected {}; only with "
                                   "task.train.numerics=mesh_invariant are the bits the same",
                                   there.mesh, here.mesh);
  if (here.programs == there.programs) return "";
  for (size_t stage = 0; stage < std::min(here.programs.size(), there.programs.size()); ++stage) {
    const auto &ours = here.programs[stage], &theirs = there.programs[stage];
    const auto [a, b] = std::ranges::mismatch(ours, theirs);
    if (a == ours.end() && b == theirs.end()) continue;
    const auto line = [](const auto& at, const auto& lines) {
      return at == lines.end() ? std::string("the end") : "'" + *at + "'";
    };
    return fmt::format(
        "its program has {} launches and this one {}; launch {} is {} there and {} "
        "here",
        theirs.size(), ours.size(), a - ours.begin() + 1, line(b, theirs), line(a, ours));
  }
  return fmt::format("its program has {} stages, expected {}", there.programs.size(),
                     here.programs.size());
}

}  // namespace tessera
