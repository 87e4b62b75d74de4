// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/page.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "tasks/logging/console.h"
#include "tasks/sweep/parallel_plot.h"
#include "tasks/sweep/table.h"

namespace tessera {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fdfdfc; --ink: #24292f; --faint: #8b949e;
  --rule: #d8dcdf; --best: #0b5cad; --worst: #c9d3dc; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #16191d; --ink: #dfe3e6; --faint: #8b949e;
  --rule: #363c43; --best: #6cb6ff; --worst: #3d4650; --bad: #ff8a80; } }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; font-weight: 600; margin: 0; }
p { margin: .3rem 0 1.2rem; color: var(--faint); }
.wide { overflow-x: auto; }
svg { display: block; max-width: none; font: 12px system-ui, sans-serif; }
.axis { stroke: var(--faint); stroke-width: 1.2; }
.tick { stroke: var(--faint); }
.label { fill: var(--ink); paint-order: stroke; stroke: var(--page); stroke-width: 3px; }
.title { fill: var(--ink); font-weight: 600; text-anchor: middle; }
.trial { fill: none; stroke: var(--faint); stroke-width: 1.8; }
.open { stroke-dasharray: 3 4; stroke-width: 1.2; }
.trial:hover { stroke: var(--ink) !important; stroke-width: 3.5; }
table { border-collapse: collapse; margin-top: 1.2rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .8rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { font-weight: 600; }
.failed { color: var(--bad); }
pre { color: var(--ink); overflow-x: auto; }
)";

std::string cell(std::string_view tag, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", tag, markup_text(text));
}

std::string table_of(const SweepRecord& record) {
  std::string html = "<table>\n<tr>" + cell("th", "trial");
  if (!record.trials.empty())
    for (const TrialSetting& setting : record.trials[0].trial.settings)
      html += cell("th", setting.path);
  for (const std::string& heading :
       {std::string("state"), std::string("step"), record.metric.name, std::string("best"),
        std::string("at step"), std::string("time")})
    html += cell("th", heading);
  html += "</tr>\n";
  for (const TrialRecord* trial : ranked(record)) {
    html += fmt::format("<tr class=\"{}\">", enum_name(trial->state)) +
            cell("td", std::to_string(trial->trial.number));
    for (const TrialSetting& setting : trial->trial.settings) html += cell("td", setting.value);
    html += cell("td", std::string(enum_name(trial->state)));
    const auto of_score = [&](auto text) {
      html += cell("td", trial->score ? text(*trial->score) : "");
    };
    of_score([](const Score& s) { return std::to_string(s.step); });
    of_score([](const Score& s) { return metric_text(s.final); });
    of_score([](const Score& s) { return metric_text(s.best); });
    of_score([](const Score& s) { return std::to_string(s.best_step); });
    html += cell("td", duration_text(trial->seconds)) + "</tr>\n";
  }
  return html + "</table>\n";
}

std::string failures_of(const SweepRecord& record) {
  std::string html;
  for (const TrialRecord& trial : record.trials)
    if (trial.state == TrialState::kFailed)
      html += fmt::format("<h2 class=\"failed\">Trial {}</h2>\n<pre>{}</pre>\n", trial.trial.number,
                          markup_text(trial.reason));
  return html;
}

}  // namespace

std::string sweep_page(const SweepRecord& record) {
  int64_t done = 0;
  for (const TrialRecord& trial : record.trials) done += trial.state == TrialState::kDone ? 1 : 0;
  const std::string title = "Sweep of " + markup_text(record.experiment);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n<h1>{}</h1>\n"
      "<p>{} of {} trials are done. Compared by the final {}; the {} value is the best.</p>\n"
      "<div class=\"wide\">\n{}</div>\n<div class=\"wide\">\n{}</div>\n{}</body></html>\n",
      title, kStyle, title, done, record.trials.size(), markup_text(record.metric.name),
      record.metric.goal == SweepGoal::kMin ? "lowest" : "highest", parallel_plot(record),
      table_of(record), failures_of(record));
}

}  // namespace tessera
