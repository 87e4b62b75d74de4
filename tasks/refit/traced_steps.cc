// SPDX-License-Identifier: Apache-2.0
#include "tasks/refit/traced_steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

using Slices = std::vector<const TraceSlice*>;

void sort_by_begin(Slices& slices) {
  std::ranges::stable_sort(slices, {}, [](const TraceSlice* slice) { return slice->begin_ns; });
}

std::vector<double> gaps_of(const Slices& computed) {
  std::vector<double> gaps;
  for (size_t i = 1; i < computed.size(); ++i) {
    const int64_t gap = computed[i]->begin_ns - computed[i - 1]->end_ns;
    gaps.push_back(static_cast<double>(std::max<int64_t>(gap, 0)) * 1e-9);
  }
  return gaps;
}

}  // namespace

std::vector<TracedStep> traced_steps(const std::vector<TraceSlice>& slices,
                                     const std::string& where) {
  // A step follows its launches, on each track.
  std::map<std::pair<int64_t, TraceTrackKind>, Slices> open;
  std::map<std::pair<int64_t, int64_t>, TracedStep> steps;  // By step and device.
  std::map<std::pair<int64_t, int64_t>, Slices> launches;
  for (const TraceSlice& slice : slices) {
    Slices& track = open[{slice.device, slice.track}];
    if (slice.is_launch) {
      track.push_back(&slice);
      continue;
    }
    const auto number = slice.step();
    if (!number) continue;
    TracedStep& step = steps[{*number, slice.device}];
    step.device = slice.device;
    step.step = *number;
    step.seconds = std::max(step.seconds, slice.seconds());
    sort_by_begin(track);
    if (slice.track == TraceTrackKind::kCompute) step.gaps = gaps_of(track);
    Slices& all = launches[{*number, slice.device}];
    all.insert(all.end(), track.begin(), track.end());
    track.clear();
  }
  if (steps.empty()) fail("{} has no steps", where);
  std::vector<TracedStep> result;
  for (auto& [key, step] : steps) {
    Slices& all = launches[key];
    sort_by_begin(all);
    for (const TraceSlice* const slice : all) {
      if (slice->is_wait()) continue;
      if (slice->launch.empty())
        fail(
            "{} was written by an older build: its launches have no types; trace some steps again "
            "with --profile=START:N",
            where);
      step.launches.push_back({slice->launch, slice->line, slice->seconds()});
    }
    result.push_back(std::move(step));
  }
  return result;
}

}  // namespace tessera
