// SPDX-License-Identifier: Apache-2.0
#include "core/passes/spmd/reshard_moves.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

using Visit = std::function<void(Move)>;

bool holds_axis(const std::string& axes, char axis) { return axes.find(axis) != std::string::npos; }

bool used(const LayoutKey& layout, char axis) {
  return std::any_of(layout.begin(), layout.end(),
                     [&](const std::string& part) { return holds_axis(part, axis); });
}

std::string without(std::string axes, const std::string& removed) {
  std::erase_if(axes, [&](char axis) { return holds_axis(removed, axis); });
  return axes;
}

std::string sorted(std::string axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

// Every subset that is not empty, fewest axes last: fused collectives are tried first.
std::vector<std::string> subsets(const std::string& axes) {
  std::vector<std::string> all;
  for (uint64_t bits = (uint64_t{1} << axes.size()) - 1; bits > 0; --bits) {
    std::string subset;
    for (size_t i = 0; i < axes.size(); ++i)
      if ((bits >> i & 1) != 0) subset += axes[i];
    all.push_back(subset);
  }
  return all;
}

}  // namespace

ReshardMoves::ReshardMoves(const Type& from, const Type& to, const Mesh& mesh)
    : mesh_(mesh), type_(from), from_(key(from)), to_(key(to)) {
  partial_ = from.partial ? from.partial.kind : to.partial.kind;
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    const char axis = static_cast<char>(i);
    if (used(from_, axis) || used(to_, axis)) mesh_axes_ += axis;
  }
  for (size_t i = 0; i < type_.axes.size(); ++i)
    if (!from_[i].empty() || !to_[i].empty()) axes_.push_back(i);
}

LayoutKey ReshardMoves::key(const Type& type) const {
  LayoutKey key;
  const auto add = [&](const std::vector<std::string>& mesh_axes) {
    key.emplace_back();
    for (const std::string& name : mesh_axes)
      if (mesh_.size(name) > 1) key.back() += static_cast<char>(mesh_.position(name));
  };
  for (const Axis& axis : type.axes) add(axis.split);
  add(type.partial.mesh_axes);
  return key;
}

std::vector<std::string> ReshardMoves::names(const std::string& mesh_axes) const {
  std::vector<std::string> names;
  for (const char axis : mesh_axes) names.push_back(mesh_.axes()[static_cast<size_t>(axis)].name);
  return names;
}

int64_t ReshardMoves::devices(const std::string& mesh_axes) const {
  int64_t product = 1;
  for (const char axis : mesh_axes) product *= mesh_.axes()[static_cast<size_t>(axis)].size();
  return product;
}

int64_t ReshardMoves::slow_devices(const std::string& mesh_axes) const {
  int64_t product = 1;
  for (const char axis : mesh_axes) product *= mesh_.axes()[static_cast<size_t>(axis)].dcn;
  return product;
}

int64_t ReshardMoves::local_bytes(const LayoutKey& layout) const {
  int64_t bytes = type_.bytes();
  for (size_t i = 0; i + 1 < layout.size(); ++i) bytes /= devices(layout[i]);
  return bytes;
}

bool ReshardMoves::divides(const LayoutKey& layout, size_t axis) const {
  return type_.axes[axis].size % devices(layout[axis]) == 0;
}

// Of a gather to, or a scatter of, `whole` bytes.
LinkUse ReshardMoves::shared(int64_t whole, const std::string& mesh_axes) const {
  const int64_t all = devices(mesh_axes), slow = slow_devices(mesh_axes), fast = all / slow;
  LinkUse use;
  use.ici_bytes = whole * (fast - 1) / fast;
  use.dcn_bytes = whole * (all - 1) / all - use.ici_bytes;
  (slow > 1 ? use.dcn_collectives : use.ici_collectives) = 1;
  return use;
}

void ReshardMoves::each(const LayoutKey& layout, const Visit& visit) const {
  slices(layout, visit);
  masks(layout, visit);
  pads(layout, visit);
  reductions(layout, visit);
  exchanges(layout, visit);
  gathers(layout, visit);
  permutes(layout, visit);
}

void ReshardMoves::slices(const LayoutKey& layout, const Visit& visit) const {
  for (const size_t axis : axes_) {
    for (const char mesh_axis : mesh_axes_) {
      // What the target does not split would have to be gathered again.
      if (used(layout, mesh_axis) || !used(to_, mesh_axis) || holds_axis(to_.back(), mesh_axis))
        continue;
      Move move{StepKind::kSlice, {mesh_axis}, axis, 0, layout, {}};
      move.result[axis] += mesh_axis;
      if (divides(move.result, axis)) visit(std::move(move));
    }
  }
}

void ReshardMoves::masks(const LayoutKey& layout, const Visit& visit) const {
  std::string wanted;
  for (const char mesh_axis : to_.back())
    if (!used(layout, mesh_axis)) wanted += mesh_axis;
  if (partial_ != PartialKind::kSum) return;
  for (const std::string& subset : subsets(wanted)) {
    Move move{StepKind::kMask, subset, 0, 0, layout, {}};
    move.result.back() = sorted(move.result.back() + subset);
    visit(std::move(move));
  }
}

void ReshardMoves::pads(const LayoutKey& layout, const Visit& visit) const {
  if (partial_ != PartialKind::kSum) return;
  for (const size_t axis : axes_) {
    const std::string& split = layout[axis];
    for (size_t begin = 0; begin < split.size(); ++begin) {
      const std::string run = split.substr(begin);
      const bool wanted = std::all_of(run.begin(), run.end(),
                                      [&](char each) { return holds_axis(to_.back(), each); });
      if (!wanted) continue;
      Move move{StepKind::kPad, run, axis, 0, layout, {}};
      move.result[axis].resize(begin);
      move.result.back() = sorted(move.result.back() + run);
      visit(std::move(move));
    }
  }
}

void ReshardMoves::reductions(const LayoutKey& layout, const Visit& visit) const {
  const int64_t whole = local_bytes(layout);
  for (const std::string& subset : subsets(layout.back())) {
    const LinkUse once = shared(whole, subset);
    if (partial_ == PartialKind::kSum) {
      for (const size_t axis : axes_) {
        std::string run = subset;
        do {
          Move move{StepKind::kReduceScatter, run, axis, 0, layout, once};
          move.result[axis] += run;
          move.result.back() = without(layout.back(), subset);
          if (divides(move.result, axis)) visit(std::move(move));
        } while (std::next_permutation(run.begin(), run.end()));
      }
    }
    Move move{StepKind::kAllReduce, subset, 0, 0, layout, once};
    move.use.ici_bytes *= 2;
    move.use.dcn_bytes *= 2;
    move.result.back() = without(layout.back(), subset);
    visit(std::move(move));
  }
}

void ReshardMoves::gathers(const LayoutKey& layout, const Visit& visit) const {
  const int64_t part = local_bytes(layout);
  for (const size_t axis : axes_) {
    const std::string& split = layout[axis];
    for (size_t begin = 0; begin < split.size(); ++begin) {
      const std::string run = split.substr(begin);
      Move move{StepKind::kAllGather, run, axis, 0, layout, shared(part * devices(run), run)};
      move.result[axis].resize(begin);
      visit(std::move(move));
    }
  }
}

void ReshardMoves::exchanges(const LayoutKey& layout, const Visit& visit) const {
  const int64_t part = local_bytes(layout);
  for (const size_t axis : axes_) {
    const std::string& split = layout[axis];
    for (size_t begin = 0; begin < split.size(); ++begin) {
      const std::string run = split.substr(begin);
      const int64_t all = devices(run), slow = slow_devices(run);
      LinkUse use;
      use.ici_bytes = part * (all / slow - 1) / all;
      use.dcn_bytes = part * (all - 1) / all - use.ici_bytes;
      (slow > 1 ? use.dcn_collectives : use.ici_collectives) = 1;
      for (const size_t to_axis : axes_) {
        if (to_axis == axis) continue;
        Move move{StepKind::kAllToAll, run, axis, to_axis, layout, use};
        move.result[axis].resize(begin);
        move.result[to_axis] += run;
        if (divides(move.result, to_axis)) visit(std::move(move));
      }
    }
  }
}

void ReshardMoves::permutes(const LayoutKey& layout, const Visit& visit) const {
  LayoutKey built(layout.size());
  permute_from(layout, 0, built, mesh_axes_, visit);
}

// All layouts with as many shards along each axis, and as many terms, as `layout`: parts before
// `part` are built already, of mesh axes that are no longer `unused`.
void ReshardMoves::permute_from(const LayoutKey& layout, size_t part, LayoutKey& built,
                                std::string unused, const Visit& visit) const {
  if (part == layout.size()) {
    if (built == layout) return;
    Move move{StepKind::kPermute, {}, 0, 0, built, {}};
    for (const char mesh_axis : mesh_axes_) {
      for (size_t i = 0; i < layout.size(); ++i) {
        const bool moves = holds_axis(layout[i], mesh_axis) || holds_axis(built[i], mesh_axis);
        if (!moves || layout[i] == built[i] || holds_axis(move.mesh_axes, mesh_axis)) continue;
        move.mesh_axes += mesh_axis;
      }
    }
    const bool slow = slow_devices(move.mesh_axes) > 1;
    (slow ? move.use.dcn_bytes : move.use.ici_bytes) = local_bytes(layout);
    (slow ? move.use.dcn_collectives : move.use.ici_collectives) = 1;
    visit(std::move(move));
    return;
  }
  const bool is_partial = part + 1 == layout.size();
  if (devices(built[part]) == devices(layout[part])) {
    const bool moves_maximum = is_partial && partial_ == PartialKind::kMax;
    if (!moves_maximum || built[part] == layout[part])
      permute_from(layout, part + 1, built, unused, visit);
    return;
  }
  for (const char mesh_axis : std::string(unused)) {
    // The terms of a sum have no order.
    if (is_partial && !built[part].empty() && mesh_axis < built[part].back()) continue;
    built[part] += mesh_axis;
    if (devices(layout[part]) % devices(built[part]) == 0)
      permute_from(layout, part, built, without(unused, {mesh_axis}), visit);
    built[part].pop_back();
  }
}

ReshardStep ReshardMoves::step(const Move& move) const {
  ReshardStep step{move.kind, names(move.mesh_axes), {}, {}, type_};
  const bool along_axis = move.kind != StepKind::kMask && move.kind != StepKind::kAllReduce &&
                          move.kind != StepKind::kPermute;
  if (along_axis) step.axis = type_.axes[move.axis].name;
  if (move.kind == StepKind::kAllToAll) step.to_axis = type_.axes[move.to_axis].name;
  for (size_t i = 0; i < type_.axes.size(); ++i) step.result.axes[i].split = names(move.result[i]);
  step.result.partial = {};
  if (!move.result.back().empty()) step.result.partial = {partial_, names(move.result.back())};
  return step;
}

}  // namespace tessera
