// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spmd/reshard_plan.h"

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <queue>
#include <tuple>

#include "core/base/error.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Mesh axes of more than one device, by their position in the mesh. A mesh has at most 24 of them
// (kMaxDevices).
enum class MeshAxisIndex : uint8_t {};

// A list of mesh axes as a small value, for searches over layouts.
class MeshAxisList {
 public:
  MeshAxisList() = default;
  MeshAxisList(MeshAxisIndex axis) { push_back(axis); }  // NOLINT(google-explicit-constructor)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const MeshAxisIndex* begin() const { return axes_.data(); }
  const MeshAxisIndex* end() const { return axes_.data() + size_; }
  MeshAxisIndex* begin() { return axes_.data(); }
  MeshAxisIndex* end() { return axes_.data() + size_; }
  MeshAxisIndex operator[](size_t i) const { return axes_[i]; }
  MeshAxisIndex back() const { return axes_[size_ - 1]; }
  bool contains(MeshAxisIndex axis) const { return std::find(begin(), end(), axis) != end(); }

  void push_back(MeshAxisIndex axis) {
    CHECK(size_ < axes_.size());
    axes_[size_++] = axis;
  }
  void pop_back() { truncate(size_ - 1); }
  // Unused entries are zero, so that the comparison below is that of the lists.
  void truncate(size_t size) {
    std::fill(axes_.begin() + static_cast<std::ptrdiff_t>(size), axes_.end(), MeshAxisIndex{});
    size_ = static_cast<uint8_t>(size);
  }

  MeshAxisList from(size_t first) const {
    MeshAxisList result;
    for (size_t i = first; i < size_; ++i) result.push_back(axes_[i]);
    return result;
  }
  MeshAxisList without(const MeshAxisList& removed) const {
    MeshAxisList result;
    for (const MeshAxisIndex axis : *this)
      if (!removed.contains(axis)) result.push_back(axis);
    return result;
  }
  MeshAxisList operator+(const MeshAxisList& other) const {
    MeshAxisList result = *this;
    for (const MeshAxisIndex axis : other) result.push_back(axis);
    return result;
  }
  MeshAxisList sorted() const {
    MeshAxisList result = *this;
    std::ranges::sort(result);
    return result;
  }
  auto operator<=>(const MeshAxisList&) const = default;

 private:
  std::array<MeshAxisIndex, 24> axes_{};
  uint8_t size_ = 0;
};

// Returns every non-empty subset, large ones first: fused collectives are tried first.
std::vector<MeshAxisList> subsets(const MeshAxisList& axes) {
  std::vector<MeshAxisList> all;
  for (uint64_t bits = (uint64_t{1} << axes.size()) - 1; bits > 0; --bits) {
    MeshAxisList subset;
    for (size_t i = 0; i < axes.size(); ++i)
      if ((bits >> i & 1) != 0) subset.push_back(axes[i]);
    all.push_back(subset);
  }
  return all;
}

// The layout of an array: the mesh axes that split each of its axes, outermost first, and those of
// the partial, in mesh order.
struct Layout {
  std::vector<MeshAxisList> splits;
  MeshAxisList partial;

  // The partial follows the splits.
  size_t parts() const { return splits.size() + 1; }
  const MeshAxisList& part(size_t i) const { return i < splits.size() ? splits[i] : partial; }
  MeshAxisList& part(size_t i) { return i < splits.size() ? splits[i] : partial; }
  bool uses(MeshAxisIndex axis) const {
    return partial.contains(axis) || std::ranges::any_of(splits, [&](const MeshAxisList& split) {
             return split.contains(axis);
           });
  }
  auto operator<=>(const Layout&) const = default;
};

// A step between two layouts, and its cost.
struct Move {
  StepKind kind = StepKind::kSlice;
  MeshAxisList mesh_axes;
  size_t axis = 0, to_axis = 0;
  Layout result;
  LinkUse use;
};

// The moves between layouts of one array as a graph to search.
class ReshardMoves {
  using Visit = std::function<void(Move)>;

 public:
  ReshardMoves(const Type& from, const Type& to, const Mesh& mesh)
      : mesh_(mesh), type_(from), from_(layout_of(from)), to_(layout_of(to)) {
    partial_ = from.partial ? from.partial.kind : to.partial.kind;
    for (size_t i = 0; i < mesh.axes().size(); ++i) {
      const auto axis = static_cast<MeshAxisIndex>(i);
      if (from_.uses(axis) || to_.uses(axis)) mesh_axes_.push_back(axis);
    }
    for (size_t i = 0; i < type_.axes.size(); ++i)
      if (!from_.splits[i].empty() || !to_.splits[i].empty()) axes_.push_back(i);
  }

  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }
  // Visits all moves from `layout`, in a fixed order.
  void each(const Layout& layout, const Visit& visit) const {
    slices(layout, visit);
    masks(layout, visit);
    pads(layout, visit);
    reductions(layout, visit);
    exchanges(layout, visit);
    gathers(layout, visit);
    permutes(layout, visit);
  }

  ReshardStep step(const Move& move) const {
    ReshardStep step{move.kind, names(move.mesh_axes), {}, {}, type_};
    const bool along_axis = move.kind != StepKind::kMask && move.kind != StepKind::kAllReduce &&
                            move.kind != StepKind::kPermute;
    if (along_axis) step.axis = type_.axes[move.axis].name;
    if (move.kind == StepKind::kAllToAll) step.to_axis = type_.axes[move.to_axis].name;
    for (size_t i = 0; i < type_.axes.size(); ++i)
      step.result.axes[i].split = names(move.result.splits[i]);
    step.result.partial = {};
    if (!move.result.partial.empty()) step.result.partial = {partial_, names(move.result.partial)};
    return step;
  }

 private:
  Layout layout_of(const Type& type) const {
    const auto positions = [&](const std::vector<std::string>& mesh_axes) {
      MeshAxisList list;
      for (const std::string& name : mesh_axes)
        if (mesh_.size(name) > 1) list.push_back(static_cast<MeshAxisIndex>(mesh_.position(name)));
      return list;
    };
    Layout layout;
    for (const Axis& axis : type.axes) layout.splits.push_back(positions(axis.split));
    layout.partial = positions(type.partial.mesh_axes);
    return layout;
  }

  std::vector<std::string> names(const MeshAxisList& mesh_axes) const {
    std::vector<std::string> names;
    for (const MeshAxisIndex axis : mesh_axes)
      names.push_back(mesh_.axes()[static_cast<size_t>(axis)].name);
    return names;
  }

  int64_t devices(const MeshAxisList& mesh_axes) const {
    int64_t product = 1;
    for (const MeshAxisIndex axis : mesh_axes)
      product *= mesh_.axes()[static_cast<size_t>(axis)].size();
    return product;
  }

  // Returns how many slices they span.
  int64_t slow_devices(const MeshAxisList& mesh_axes) const {
    int64_t product = 1;
    for (const MeshAxisIndex axis : mesh_axes)
      product *= mesh_.axes()[static_cast<size_t>(axis)].dcn;
    return product;
  }

  int64_t local_bytes(const Layout& layout) const {
    int64_t bytes = type_.bytes();
    for (const MeshAxisList& split : layout.splits) bytes /= devices(split);
    return bytes;
  }

  bool divides(const Layout& layout, size_t axis) const {
    if (is_in_pieces(layout, axis)) return layout.splits[axis].size() == 1;
    return type_.axes[axis].size % devices(layout.splits[axis]) == 0;
  }

  // Returns whether layers are split into pieces over `stage`, to which no other mesh axis can
  // apply.
  bool is_in_pieces(const Layout& layout, size_t axis) const {
    return !mesh_.layer_pieces().empty() && type_.axes[axis].name == kLayersAxis &&
           layout.splits[axis].contains(static_cast<MeshAxisIndex>(mesh_.position(kStageAxis)));
  }

  // Returns the cost of a collective that sends `all` bytes, `fast` of them over fast links.
  LinkUse collective(const MeshAxisList& mesh_axes, int64_t fast, int64_t all) const {
    const int64_t slow = slow_devices(mesh_axes) > 1 ? 1 : 0;
    return {fast, all - fast, 1 - slow, slow};
  }

  // Returns the cost of gathering to, or scattering, `whole` bytes.
  LinkUse shared(int64_t whole, const MeshAxisList& mesh_axes) const {
    const int64_t all = devices(mesh_axes), fast = all / slow_devices(mesh_axes);
    return collective(mesh_axes, whole * (fast - 1) / fast, whole * (all - 1) / all);
  }

  // Visits each run of innermost splits of an axis: the axis, its mesh axes, and the layout
  // without.
  template <typename VisitRun>
  void each_run(const Layout& layout, const VisitRun& visit) const {
    for (const size_t axis : axes_) {
      const MeshAxisList& split = layout.splits[axis];
      for (size_t begin = 0; begin < split.size(); ++begin) {
        Layout without = layout;
        without.splits[axis].truncate(begin);
        visit(axis, split.from(begin), std::move(without));
      }
    }
  }

  void slices(const Layout& layout, const Visit& visit) const {
    for (const size_t axis : axes_) {
      for (const MeshAxisIndex mesh_axis : mesh_axes_) {
        // Splits that the target lacks would have to be gathered again.
        if (layout.uses(mesh_axis) || !to_.uses(mesh_axis) || to_.partial.contains(mesh_axis))
          continue;
        Move move{StepKind::kSlice, mesh_axis, axis, 0, layout, {}};
        move.result.splits[axis].push_back(mesh_axis);
        if (divides(move.result, axis)) visit(std::move(move));
      }
    }
  }

  void masks(const Layout& layout, const Visit& visit) const {
    if (partial_ != PartialKind::kSum) return;
    MeshAxisList missing;
    for (const MeshAxisIndex mesh_axis : to_.partial)
      if (!layout.uses(mesh_axis)) missing.push_back(mesh_axis);
    for (const MeshAxisList& subset : subsets(missing)) {
      Move move{StepKind::kMask, subset, 0, 0, layout, {}};
      move.result.partial = (move.result.partial + subset).sorted();
      visit(std::move(move));
    }
  }

  void pads(const Layout& layout, const Visit& visit) const {
    if (partial_ != PartialKind::kSum) return;
    each_run(layout, [&](size_t axis, const MeshAxisList& run, Layout result) {
      if (!std::ranges::all_of(run, [&](MeshAxisIndex each) { return to_.partial.contains(each); }))
        return;
      result.partial = (result.partial + run).sorted();
      visit({StepKind::kPad, run, axis, 0, std::move(result), {}});
    });
  }

  void reductions(const Layout& layout, const Visit& visit) const {
    const int64_t whole = local_bytes(layout);
    for (const MeshAxisList& subset : subsets(layout.partial)) {
      const LinkUse once = shared(whole, subset);
      if (partial_ == PartialKind::kSum) {
        for (const size_t axis : axes_) {
          MeshAxisList run = subset;
          do {
            Move move{StepKind::kReduceScatter, run, axis, 0, layout, once};
            move.result.splits[axis] = move.result.splits[axis] + run;
            move.result.partial = layout.partial.without(subset);
            if (divides(move.result, axis)) visit(std::move(move));
          } while (std::next_permutation(run.begin(), run.end()));
        }
      }
      Move move{StepKind::kAllReduce, subset, 0, 0, layout, once};
      move.use.ici_bytes *= 2;
      move.use.dcn_bytes *= 2;
      move.result.partial = layout.partial.without(subset);
      visit(std::move(move));
    }
  }

  void gathers(const Layout& layout, const Visit& visit) const {
    const int64_t part = local_bytes(layout);
    each_run(layout, [&](size_t axis, const MeshAxisList& run, Layout result) {
      visit({StepKind::kAllGather, run, axis, 0, std::move(result),
             shared(part * devices(run), run)});
    });
  }

  void exchanges(const Layout& layout, const Visit& visit) const {
    const int64_t part = local_bytes(layout);
    each_run(layout, [&](size_t axis, const MeshAxisList& run, const Layout& without) {
      const int64_t all = devices(run), fast = all / slow_devices(run);
      const LinkUse use = collective(run, part * (fast - 1) / all, part * (all - 1) / all);
      for (const size_t to_axis : axes_) {
        if (to_axis == axis) continue;
        Move move{StepKind::kAllToAll, run, axis, to_axis, without, use};
        move.result.splits[to_axis] = without.splits[to_axis] + run;
        if (divides(move.result, to_axis)) visit(std::move(move));
      }
    });
  }

  void permutes(const Layout& layout, const Visit& visit) const {
    if (std::ranges::any_of(axes_, [&](size_t axis) { return is_in_pieces(layout, axis); })) return;
    Layout built;
    built.splits.resize(layout.splits.size());
    permute_from(layout, 0, built, mesh_axes_, visit);
  }

  // Visits all layouts with as many shards along each axis, and as many terms, as `layout`. The
  // parts of `built` before `part` are complete; `unused` are the remaining mesh axes.
  void permute_from(const Layout& layout, size_t part, Layout& built, const MeshAxisList& unused,
                    const Visit& visit) const {
    if (part == layout.parts()) {
      if (built == layout) return;
      Move move{StepKind::kPermute, {}, 0, 0, built, {}};
      for (const MeshAxisIndex mesh_axis : mesh_axes_) {
        for (size_t i = 0; i < layout.parts(); ++i) {
          const MeshAxisList &before = layout.part(i), &after = built.part(i);
          const bool moves = before.contains(mesh_axis) || after.contains(mesh_axis);
          if (!moves || before == after || move.mesh_axes.contains(mesh_axis)) continue;
          move.mesh_axes.push_back(mesh_axis);
        }
      }
      const int64_t bytes = local_bytes(layout);
      const bool slow = slow_devices(move.mesh_axes) > 1;
      move.use = collective(move.mesh_axes, slow ? 0 : bytes, bytes);
      visit(std::move(move));
      return;
    }
    const bool is_partial = part + 1 == layout.parts();
    MeshAxisList& mesh_axes = built.part(part);
    const int64_t wanted = devices(layout.part(part));
    if (devices(mesh_axes) == wanted) {
      const bool moves_maximum = is_partial && partial_ == PartialKind::kMax;
      if (!moves_maximum || mesh_axes == layout.part(part))
        permute_from(layout, part + 1, built, unused, visit);
      return;
    }
    for (const MeshAxisIndex mesh_axis : unused) {
      // The mesh axes of a partial are in mesh order.
      if (is_partial && !mesh_axes.empty() && mesh_axis < mesh_axes.back()) continue;
      mesh_axes.push_back(mesh_axis);
      if (wanted % devices(mesh_axes) == 0)
        permute_from(layout, part, built, unused.without(mesh_axis), visit);
      mesh_axes.pop_back();
    }
  }

  Mesh mesh_;
  Type type_;                 // The type of the array.
  MeshAxisList mesh_axes_;    // Mesh axes that `from` or `to` uses.
  std::vector<size_t> axes_;  // Axes of the array that `from` or `to` splits.
  Layout from_, to_;
  PartialKind partial_ = PartialKind::kNone;
};

// Dijkstra's search for the shortest path between layouts. Moves are visited in a fixed order and
// ties keep the path found first, so plans are deterministic. Since cheaper layouts are expanded
// first, paths that shrink the array first and gather last win ties.
class PlanSearch {
 public:
  PlanSearch(const ReshardMoves& moves, const LinkCosts& costs) : moves_(moves), costs_(costs) {}

  ReshardPlan run() {
    reach(moves_.from(), {}, {}, 0, {});
    for (;;) {
      CHECK(!queue_.empty(), "no plan between two layouts of an array");
      const Entry entry = queue_.top();
      queue_.pop();
      const auto found = places_.find(entry.layout);
      if (found->second.done) continue;
      found->second.done = true;
      if (entry.layout == moves_.to()) return plan();
      const Place place = found->second;
      moves_.each(entry.layout, [&](Move move) {
        LinkUse use = place.use;
        use += move.use;
        const Layout result = move.result;
        reach(result, std::move(move), entry.layout, place.steps + 1, use);
      });
    }
  }

 private:
  struct Place {
    Move by;
    Layout from;
    LinkUse use;
    double seconds = 0.0;
    int64_t steps = 0;
    bool done = false;
  };
  struct Entry {
    double seconds = 0.0;
    int64_t steps = 0, number = 0;
    Layout layout;
    bool operator<(const Entry& other) const {  // For a priority queue: the best is the greatest.
      return std::tie(other.seconds, other.steps, other.number) < std::tie(seconds, steps, number);
    }
  };

  void reach(const Layout& layout, Move by, const Layout& from, int64_t steps, const LinkUse& use) {
    const double seconds = use.seconds(costs_);
    const auto [found, added] = places_.try_emplace(layout);
    Place& place = found->second;
    if (!added && std::tie(place.seconds, place.steps) <= std::tie(seconds, steps)) return;
    place = {std::move(by), from, use, seconds, steps, false};
    queue_.push({seconds, steps, next_number_++, layout});
  }

  ReshardPlan plan() const {
    ReshardPlan plan;
    plan.use = places_.at(moves_.to()).use;
    for (Layout at = moves_.to(); at != moves_.from(); at = Layout(places_.at(at).from))
      plan.steps.push_back(moves_.step(places_.at(at).by));
    std::ranges::reverse(plan.steps);
    return plan;
  }

  const ReshardMoves& moves_;
  const LinkCosts& costs_;
  std::map<Layout, Place> places_;
  std::priority_queue<Entry> queue_;
  int64_t next_number_ = 0;
};

}  // namespace

const OpDef& step_op(StepKind kind) {
  switch (kind) {
    case StepKind::kSlice:
      return kSliceOp;
    case StepKind::kMask:
      return kMaskToOwnerOp;
    case StepKind::kPad:
      return kPadOp;
    case StepKind::kAllGather:
      return kAllGatherOp;
    case StepKind::kReduceScatter:
      return kReduceScatterOp;
    case StepKind::kAllReduce:
      return kAllReduceOp;
    case StepKind::kAllToAll:
      return kAllToAllOp;
    case StepKind::kPermute:
      return kPermuteOp;
  }
  CHECK(false, "an unknown step");
}

double LinkUse::seconds(const LinkCosts& costs) const {
  return static_cast<double>(ici_bytes) / costs.ici_bandwidth +
         static_cast<double>(dcn_bytes) / costs.dcn_bandwidth +
         static_cast<double>(ici_collectives) * costs.ici_latency +
         static_cast<double>(dcn_collectives) * costs.dcn_latency;
}

LinkUse& LinkUse::operator+=(const LinkUse& other) {
  ici_bytes += other.ici_bytes;
  dcn_bytes += other.dcn_bytes;
  ici_collectives += other.ici_collectives;
  dcn_collectives += other.dcn_collectives;
  return *this;
}

const ReshardPlan& ReshardPlanner::plan(const Type& from, const Type& to) {
  const auto [found, added] = plans_.try_emplace({from.text_sized(), to.text_sized()});
  if (added) {
    const ReshardMoves moves(from, to, mesh_);
    found->second = PlanSearch(moves, costs_).run();
  }
  return found->second;
}

}  // namespace tessera
