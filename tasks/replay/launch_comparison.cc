// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/launch_comparison.h"

#include <utility>

#include "core/base/error.h"
#include "tasks/run/observe/value_range.h"

namespace tessera {
namespace {

std::vector<std::string> hashes_of(const ArrayBytesList& arrays) {
  std::vector<std::string> hashes;
  for (const std::vector<std::byte>& array : arrays) hashes.push_back(array_hash(array));
  return hashes;
}

}  // namespace

void Comparison::add_equal() {
  const std::lock_guard lock(mutex_);
  ++compared_;
}

void Comparison::add(LaunchDifference difference) {
  const std::lock_guard lock(mutex_);
  ++compared_;
  differences_.push_back(std::move(difference));
}

std::vector<LaunchDifference> Comparison::differences() const {
  const std::lock_guard lock(mutex_);
  return differences_;
}

LaunchInspector LaunchObservation::inspector() {
  return {.before = [this](const InspectedLaunch& launch) { before(launch); },
          .after = [this](const InspectedLaunch& launch) { after(launch); }};
}

void LaunchObservation::begin(const LaunchList& list, const LaunchSinks& sinks) {
  list_ = &list;
  sinks_ = sinks;
  open_.clear();
}

void LaunchObservation::before(const InspectedLaunch& launch) {
  const ListedLaunch* const listed = list_->find(launch.kind, launch.index);
  if (listed == nullptr) return;
  Open& open = open_[listed->number];
  open.record = {.device = device_, .launch = listed->number};
  open.outputs.assign(launch.outputs.begin(), launch.outputs.end());
  ArrayBytesList inputs =
      read_arrays(*listed->graph, listed->node->inputs, launch.inputs, launch.stream);
  open.record.inputs.hashes = hashes_of(inputs);
  if (sinks_.values == RecordedValues::kAll) open.record.inputs.values = std::move(inputs);
  if (sinks_.other != nullptr) take_other(*listed, launch, open);
}

void LaunchObservation::take_other(const ListedLaunch& listed, const InspectedLaunch& launch,
                                   Open& open) {
  LaunchRecord& theirs = open.other.emplace(sinks_.other->take(device_, listed.number));
  const std::vector<std::string>& ours = open.record.inputs.hashes;
  if (theirs.inputs.hashes.size() != ours.size() ||
      theirs.outputs.hashes.size() != listed.node->outputs.size())
    fail("{} is damaged: launch {} has other arrays there", sinks_.other->where(), listed.number);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs.inputs.hashes[i] == ours[i]) continue;
    open.unequal_inputs.push_back(i);
    if (sinks_.inputs == LaunchInputs::kOther) {
      CHECK(i < theirs.inputs.values.size());
      launch.stream.copy_from_host(launch.inputs[i], theirs.inputs.values[i]);
    }
  }
  launch.stream.synchronize();
}

void LaunchObservation::after(const InspectedLaunch& launch) {
  const ListedLaunch* const listed = list_->find(launch.kind, launch.index);
  if (listed == nullptr) return;
  auto closed = open_.extract(listed->number);
  CHECK(!closed.empty());
  Open& open = closed.mapped();
  ArrayBytesList outputs =
      read_arrays(*listed->graph, listed->node->outputs, open.outputs, launch.stream);
  open.record.outputs.hashes = hashes_of(outputs);
  if (sinks_.sums != nullptr) sinks_.sums->add(*listed, outputs);
  if (open.other) compare(*listed, open, open.other->outputs, outputs);
  if (sinks_.writer == nullptr) return;
  if (sinks_.values != RecordedValues::kNone) open.record.outputs.values = std::move(outputs);
  sinks_.writer->add(open.record);
}

void LaunchObservation::compare(const ListedLaunch& listed, Open& open,
                                const RecordedArrays& theirs, const ArrayBytesList& outputs) const {
  LaunchDifference difference{
      .device = device_, .launch = listed.number, .inputs = std::move(open.unequal_inputs)};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (theirs.hashes[i] == open.record.outputs.hashes[i]) continue;
    if (theirs.values.empty()) {
      difference.outputs.push_back({i, std::nullopt});
      continue;
    }
    const Type& type = listed.graph->type(listed.node->outputs[i]);
    if (std::ssize(theirs.values[i]) != type.bytes())
      fail("{} is damaged: launch {} has other arrays there", sinks_.other->where(), listed.number);
    if (auto found = array_difference(type, outputs[i], theirs.values[i], sinks_.tolerance))
      difference.outputs.push_back({i, std::move(found)});
  }
  if (difference.outputs.empty()) return sinks_.comparison->add_equal();
  sinks_.comparison->add(std::move(difference));
}

}  // namespace tessera
