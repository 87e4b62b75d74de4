// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/output.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/printable.h"
#include "core/io/json.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

constexpr size_t kMostRefusals = 8;  // Groups that are printed.

std::string without_digits(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c < '0' || c > '9') {
      result += c;
    } else if (result.empty() || result.back() != '#') {
      result += '#';
    }
  return result;
}

std::string seconds_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

// A line with time, memory and MFU, and a candidate on the next lines if it is too long.
std::string row(std::string_view head, const PlannedStep& step, const std::string& what) {
  const std::string line =
      fmt::format("  {:<8}{:>11} {:>12} {:>6.1f} %   ", head, seconds_text(step.seconds),
                  size_text(step.bytes), 100.0 * step.mfu);
  if (line.size() + what.size() <= kPlanColumns) return line + what + "\n";
  return line + wrapped(what, line.size()).substr(line.size());
}

std::string hours_text(const SearchOptions& options, int64_t devices, double seconds) {
  const double amount = 1000.0 * score(SearchGoal::kCost, options.hardware, devices, seconds, 0);
  return options.hardware.price_per_hour
             ? fmt::format("{:.4g} (in the currency of price_per_hour)", amount)
             : fmt::format("{:.4g} device hours", amount);
}

std::string heading(const SearchResult& result, const SearchOptions& options,
                    const std::string& experiment) {
  std::vector<int64_t> devices = options.space.devices;
  if (devices.empty()) devices = {result.recipe.devices};
  const std::string slice =
      options.space.slice ? fmt::format(", fast links among {}", *options.space.slice) : "";
  return fmt::format("search of {} for {}: {} × {} of {}{}\n", experiment, enum_name(options.goal),
                     fmt::join(devices, " or "), options.hardware.title,
                     size_text(options.hardware.memory.bytes), slice);
}

std::string recipe_row(const SearchResult& result, const SearchOptions& options) {
  const RecipePlan& recipe = result.recipe;
  if (!recipe.refusal.empty()) return wrapped("recipe: " + recipe.refusal, 2);
  std::string text = row("recipe", recipe, recipe.text);
  if (recipe.bytes > arena_room(options.hardware))
    text += wrapped(fmt::format("which needs {} of {}", size_text(recipe.bytes),
                                size_text(arena_room(options.hardware))),
                    10);
  return text;
}

std::string comparison_text(const SearchResult& result, const SearchOptions& options) {
  const PlannedCandidate& best = result.best_candidate();
  const RecipePlan& recipe = result.recipe;
  std::string text =
      fmt::format("  a thousand steps: {}\n", hours_text(options, best.devices(), best.seconds));
  if (!recipe.refusal.empty() || recipe.seconds <= 0.0) return text;
  const double faster = recipe.seconds / best.seconds;
  const double memory = static_cast<double>(best.bytes) / static_cast<double>(recipe.bytes);
  if (best.devices() == recipe.devices)
    return fmt::format("  the best takes {:.3f} of the recipe's time and {:.3f} of its memory\n",
                       1.0 / faster, memory) +
           text;
  return fmt::format(
             "  the best is {:.3f} times as fast as the recipe, on {} devices in place of {}\n",
             faster, best.devices(), recipe.devices) +
         text;
}

std::string counts_text(const SearchResult& result, const SearchOptions& options) {
  const SearchCounts counts = counts_of(result, options);
  std::string text = "\n" + wrapped(fmt::format("{} of {} combinations planned in {:.1f} s; {} of "
                                                "them need too much memory; {} refused",
                                                counts.planned, result.combinations, result.elapsed,
                                                counts.too_large, counts.refused),
                                    2);
  if (result.smaller_state_saves > 0 && counts.too_large > 0)
    text += wrapped(
        fmt::format("Optimizer state in bf16 would save {} of the best. It changes what a run "
                    "computes, so it is searched only with --search_state_dtype.",
                    size_text(result.smaller_state_saves)),
        2);
  if (!result.is_complete)
    text += wrapped(fmt::format("The search ended after {:.0f} s, while candidates with better "
                                "neighbours were left. --search_seconds=N gives it more time.",
                                options.seconds),
                    2);
  return text;
}

// A line for each reason, with the count before it.
std::string reasons_text(std::string_view heading, const std::vector<LeftOut>& groups) {
  if (groups.empty()) return "";
  std::string text = fmt::format("\n{}\n", heading);
  for (size_t i = 0; i < std::min(groups.size(), kMostRefusals); ++i) {
    const std::string count = fmt::format("  {:>6} × ", groups[i].count);
    text += count + wrapped(groups[i].reason, 11).substr(11);
  }
  if (groups.size() > kMostRefusals)
    text += fmt::format("  and {} other reasons\n", groups.size() - kMostRefusals);
  return text;
}

std::string refusals_text(const SearchResult& result) {
  return reasons_text("layouts that are excluded", result.exclusions.groups()) +
         reasons_text("refused", refusal_groups(result));
}

JsonLine step_json(const std::string& what, int64_t devices, const PlannedStep& step) {
  return JsonLine()
      .add("candidate", what)
      .add("devices", devices)
      .add("step_seconds", step.seconds)
      .add("bytes", step.bytes)
      .add("mfu", step.mfu);
}

std::string candidate_json(const PlannedCandidate& one, SettingStyle style) {
  return step_json(one.candidate.text(), one.devices(), one)
      .add_raw("set", json_list(settings_of(one.candidate, style), json_quoted))
      .text();
}

template <typename Indices>
std::string list_json(const SearchResult& result, const Indices& indices, SettingStyle style) {
  const auto text = [&](size_t i) { return candidate_json(result.candidates[i], style); };
  return json_list(indices, text, ",\n  ");
}

}  // namespace

SearchCounts counts_of(const SearchResult& result, const SearchOptions& options) {
  SearchCounts counts;
  for (const PlannedCandidate& one : result.candidates) {
    ++(one.is_planned() ? counts.planned : counts.refused);
    if (one.is_planned() && one.bytes > arena_room(options.hardware)) ++counts.too_large;
  }
  return counts;
}

std::vector<LeftOut> refusal_groups(const SearchResult& result) {
  std::map<std::string, LeftOut> groups;
  const auto add = [&groups](const std::string& text, int64_t count) {
    const auto [group, added] = groups.try_emplace(without_digits(text), LeftOut{0, text});
    group->second.count += count;
  };
  for (const PlannedCandidate& one : result.candidates)
    if (!one.is_planned()) add(one.refusal, 1);
  std::vector<LeftOut> list;
  for (auto& [unused, group] : groups) list.push_back(std::move(group));
  std::ranges::stable_sort(list, std::greater<>(), &LeftOut::count);
  return list;
}

std::string nothing_fits(const SearchResult& result, const SearchOptions& options) {
  const PlannedCandidate* least = nullptr;
  for (const PlannedCandidate& one : result.candidates)
    if (one.is_planned() && (least == nullptr || one.bytes < least->bytes)) least = &one;
  const std::string memory = size_text(arena_room(options.hardware));
  const std::string when =
      result.is_complete
          ? ""
          : fmt::format(" among those looked at in {:.0f} s (--search_seconds)", options.seconds);
  if (least == nullptr) {
    const std::vector<LeftOut> groups = refusal_groups(result);
    return fmt::format("--search: no candidate can be planned{}",
                       groups.empty() ? "" : "; most often: " + groups.front().reason);
  }
  return fmt::format(
      "--search: no candidate{} fits {} of {}; the nearest, {} on {} devices, needs {}; give more "
      "devices (--search_devices) or a smaller batch",
      when, memory, options.hardware.title, least->candidate.text(), least->devices(),
      size_text(least->bytes));
}

std::string search_text(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style, const SearchTexts& texts) {
  std::string text = heading(result, options, texts.experiment);
  text += fmt::format("\n  {:<8}{:>11} {:>12} {:>8}\n", "", "step", "memory", "MFU");
  text += recipe_row(result, options);
  if (result.best) {
    const PlannedCandidate& best = result.candidates[*result.best];
    text += row("best", best, best.candidate.text());
    text += comparison_text(result, options);
  }
  if (result.best_of_devices.size() > 1) {
    text += "\nthe best for each number of devices\n";
    for (const size_t i : result.best_of_devices) {
      const PlannedCandidate& one = result.candidates[i];
      text += row(std::to_string(one.devices()), one, one.candidate.text());
    }
  }
  text += "\ntime against memory, of what was planned\n";
  for (const size_t i : result.frontier) {
    const PlannedCandidate& one = result.candidates[i];
    text += row(i == result.best ? "best" : "", one, one.candidate.text());
  }
  text += refusals_text(result) + counts_text(result, options);
  if (!result.best) return text;
  text += "\nthe best as a command\n  " + texts.command;
  if (!texts.set_file.empty()) {
    text += " --set_file=" + texts.set_file;
  } else {
    for (const std::string& set : settings_of(result.candidates[*result.best].candidate, style))
      text += " --set " + shell_quoted(set);
  }
  return text + "\n";
}

std::string search_json(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style) {
  const SearchCounts counts = counts_of(result, options);
  const RecipePlan& recipe = result.recipe;
  const auto refusal_json = [](const LeftOut& group) {
    return JsonLine().add("count", group.count).add("example", group.reason).text();
  };
  const auto excluded_json = [](const LeftOut& group) {
    return JsonLine().add("layouts", group.count).add("reason", group.reason).text();
  };
  JsonLine json;
  json.add("goal", enum_name(options.goal))
      .add("hardware", options.hardware.name)
      .add("memory_bytes", options.hardware.memory.bytes)
      .add_raw("recipe",
               step_json(recipe.text, recipe.devices, recipe).add("refusal", recipe.refusal).text())
      .add_raw("best",
               result.best ? candidate_json(result.candidates[*result.best], style) : "null")
      .add_raw("best_of_devices", list_json(result, result.best_of_devices, style))
      .add_raw("frontier", list_json(result, result.frontier, style))
      .add_raw("excluded", json_list(result.exclusions.groups(), excluded_json))
      .add_raw("refused", json_list(refusal_groups(result), refusal_json))
      .add_raw("counts", JsonLine()
                             .add("combinations", result.combinations)
                             .add("planned", counts.planned)
                             .add("refused", counts.refused)
                             .add("too_large", counts.too_large)
                             .text())
      .add_raw("complete", result.is_complete ? "true" : "false")
      .add("seconds", result.elapsed);
  return json.text();
}

}  // namespace tessera
