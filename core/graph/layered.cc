// SPDX-License-Identifier: Apache-2.0
#include "core/graph/layered.h"

#include <algorithm>
#include <map>
#include <set>

namespace tessera {
namespace {

constexpr double kColumnGap = 14.0;
constexpr double kRowGap = 26.0;
constexpr double kPadding = 12.0;
constexpr double kLaneWidth = 6.0;
constexpr int kSweeps = 6;
constexpr int kOutside = -1;

// What stands in a row: a child box, or a lane through which the wires of one source pass.
struct Item {
  int box = kOutside;
  int source = kOutside;
  double width = 0.0;
  double x = 0.0;                    // Of its middle, within the parent.
  std::vector<size_t> above, below;  // Its neighbours in the rows next to it.
};

// The wires of one source as one parent sees them: from one of its children (or from outside, by
// the top edge) to some of its children (or out, by the bottom edge).
struct Line {
  int from = kOutside;
  std::set<int> to;
  bool leaves = false;
};

// The x nearest to `wanted` (least squares) that keep neighbours apart: pooled adjacent violators.
std::vector<double> spread(const std::vector<double>& wanted, const std::vector<double>& offsets) {
  struct Pool {
    double sum;
    int count;
    double mean() const { return sum / count; }
  };
  std::vector<Pool> pools;
  for (size_t i = 0; i < wanted.size(); ++i) {
    pools.push_back({wanted[i] - offsets[i], 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  std::vector<double> placed;
  for (const Pool& pool : pools) {
    for (int i = 0; i < pool.count; ++i) placed.push_back(pool.mean() + offsets[placed.size()]);
  }
  return placed;
}

// The rows of one parent.
class Rows {
 public:
  Rows(const std::vector<Box>& boxes, std::vector<int> children, std::map<int, Line> lines)
      : boxes_(boxes), children_(std::move(children)), lines_(std::move(lines)) {
    rank_children();
    fill_rows();
    connect();
    for (int sweep = 0; sweep < kSweeps; ++sweep) order(sweep % 2 == 0);
    for (int sweep = 0; sweep < kSweeps; ++sweep) place(sweep % 2 == 0);
    measure();
  }

  double width() const { return width_; }
  double height() const { return height_; }
  int rank(int child) const { return ranks_.at(child); }
  int count() const { return static_cast<int>(rows_.size()); }
  const std::vector<Item>& items() const { return items_; }

  // Where a child stands, from the parent's inner corner.
  Point corner(const Item& item) const {
    const Box& box = boxes_[static_cast<size_t>(item.box)];
    const size_t row = static_cast<size_t>(rank(item.box));
    return {item.x - box.width / 2.0, tops_[row]};
  }

  // The lane of a source in a row: the points where it enters and leaves the row.
  void pass(int source, int row, Point origin, std::vector<Point>& route) const {
    const auto found = lanes_.find({source, row});
    if (found == lanes_.end()) return;
    const size_t index = static_cast<size_t>(row);
    const double x = origin.x + items_[found->second].x;
    route.push_back({x, origin.y + tops_[index]});
    route.push_back({x, origin.y + tops_[index] + heights_[index]});
  }

 private:
  void rank_children() {
    std::map<int, std::vector<int>> sources, readers;
    std::set<int> anchored;  // Children that something from outside feeds, or those it feeds.
    for (const auto& [source, line] : lines_) {
      for (const int to : line.to) {
        if (line.from == kOutside || line.from > to) anchored.insert(to);
        if (line.from == kOutside || line.from > to) continue;
        sources[to].push_back(line.from);
        readers[line.from].push_back(to);
      }
    }
    for (const int child : children_) {
      int rank = 0;
      for (const int source : sources[child]) {
        rank = std::max(rank, ranks_[source] + 1);
        if (anchored.contains(source)) anchored.insert(child);
      }
      ranks_[child] = rank;
    }
    // What hangs on nothing above (parameters, say) stands just above its first reader.
    for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
      if (anchored.contains(*child) || readers[*child].empty()) continue;
      int first = ranks_[readers[*child].front()];
      for (const int reader : readers[*child]) first = std::min(first, ranks_[reader]);
      ranks_[*child] = first - 1;
    }
  }

  void fill_rows() {
    int last = 0;
    for (const auto& [child, rank] : ranks_) last = std::max(last, rank);
    rows_.resize(static_cast<size_t>(last) + 1);
    for (const int child : children_) {
      add(ranks_[child], {.box = child, .width = boxes_[static_cast<size_t>(child)].width});
      item_of_[child] = items_.size() - 1;
    }
    for (const auto& [source, line] : lines_) {
      const int first = line.from == kOutside ? 0 : ranks_[line.from] + 1;
      int end = line.leaves ? count() : 0;
      for (const int to : line.to) end = std::max(end, ranks_[to]);
      for (int row = first; row < end; ++row) {
        add(row, {.source = source, .width = kLaneWidth});
        lanes_[{source, row}] = items_.size() - 1;
      }
    }
  }

  void add(int row, Item item) {
    items_.push_back(std::move(item));
    rows_[static_cast<size_t>(row)].push_back(items_.size() - 1);
  }

  void join(size_t upper, size_t lower) {
    items_[upper].below.push_back(lower);
    items_[lower].above.push_back(upper);
  }

  void connect() {
    for (const auto& [source, line] : lines_) {
      const auto lane = [&, key = source](int row) { return lanes_.find({key, row}); };
      for (int row = 0; row < count(); ++row) {
        const auto here = lane(row);
        if (here == lanes_.end()) continue;
        if (line.from != kOutside && ranks_[line.from] == row - 1)
          join(item_of_[line.from], here->second);
        const auto above = lane(row - 1);
        if (above != lanes_.end()) join(above->second, here->second);
      }
      for (const int to : line.to) {
        const auto above = lane(ranks_[to] - 1);
        if (above != lanes_.end()) {
          join(above->second, item_of_[to]);
        } else if (line.from != kOutside && ranks_[line.from] == ranks_[to] - 1) {
          join(item_of_[line.from], item_of_[to]);
        }
      }
    }
  }

  static double mean(const std::vector<size_t>& indices, const std::vector<double>& values,
                     double otherwise) {
    if (indices.empty()) return otherwise;
    double sum = 0.0;
    for (const size_t index : indices) sum += values[index];
    return sum / static_cast<double>(indices.size());
  }

  // Orders each row by where its neighbours stand in the row before (or after).
  void order(bool downwards) {
    std::vector<double> positions(items_.size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) {
        positions[row[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(row.size());
      }
    }
    for (size_t step = 0; step < rows_.size(); ++step) {
      std::vector<size_t>& row = rows_[downwards ? step : rows_.size() - 1 - step];
      std::vector<double> keys(items_.size());
      for (const size_t i : row) {
        keys[i] = mean(downwards ? items_[i].above : items_[i].below, positions, positions[i]);
      }
      std::stable_sort(row.begin(), row.end(),
                       [&](size_t a, size_t b) { return keys[a] < keys[b]; });
      for (size_t i = 0; i < row.size(); ++i) {
        positions[row[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(row.size());
      }
    }
  }

  // Moves each row's items towards their neighbours in the row before (or after).
  void place(bool downwards) {
    std::vector<double> xs(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) xs[i] = items_[i].x;
    for (size_t step = 0; step < rows_.size(); ++step) {
      const std::vector<size_t>& row = rows_[downwards ? step : rows_.size() - 1 - step];
      std::vector<double> wanted, offsets;
      double offset = 0.0;
      for (size_t i = 0; i < row.size(); ++i) {
        const Item& item = items_[row[i]];
        if (i > 0) offset += (items_[row[i - 1]].width + item.width) / 2.0 + kColumnGap;
        offsets.push_back(offset);
        wanted.push_back(mean(downwards ? item.above : item.below, xs, xs[row[i]]));
      }
      const std::vector<double> placed = spread(wanted, offsets);
      for (size_t i = 0; i < row.size(); ++i) items_[row[i]].x = xs[row[i]] = placed[i];
    }
  }

  void measure() {
    double left = 0.0, right = 0.0;
    bool first = true;
    for (const Item& item : items_) {
      left = first ? item.x - item.width / 2.0 : std::min(left, item.x - item.width / 2.0);
      right = first ? item.x + item.width / 2.0 : std::max(right, item.x + item.width / 2.0);
      first = false;
    }
    for (Item& item : items_) item.x -= left;
    width_ = right - left;
    double y = 0.0;
    for (const auto& row : rows_) {
      double height = 0.0;
      for (const size_t i : row) {
        if (items_[i].box == kOutside) continue;
        height = std::max(height, boxes_[static_cast<size_t>(items_[i].box)].height);
      }
      tops_.push_back(y);
      heights_.push_back(height);
      y += height + kRowGap;
    }
    height_ = y - kRowGap;
  }

  const std::vector<Box>& boxes_;
  std::vector<int> children_;
  std::map<int, Line> lines_;  // By source.
  std::map<int, int> ranks_;
  std::map<int, size_t> item_of_;
  std::map<std::pair<int, int>, size_t> lanes_;  // By source and row.
  std::vector<Item> items_;
  std::vector<std::vector<size_t>> rows_;
  std::vector<double> tops_, heights_;
  double width_ = 0.0, height_ = 0.0;
};

class Arranger {
 public:
  Arranger(std::vector<Box>& boxes, std::vector<Wire>& wires)
      : boxes_(boxes), wires_(wires), children_(boxes.size()) {
    for (size_t i = 1; i < boxes.size(); ++i) {
      children_[static_cast<size_t>(boxes[i].parent)].push_back(static_cast<int>(i));
    }
  }

  void arrange() {
    for (int box = static_cast<int>(boxes_.size()) - 1; box >= 0; --box) size(box);
    for (int box = 0; box < static_cast<int>(boxes_.size()); ++box) place_children(box);
    for (Wire& wire : wires_) route(wire);
    spread_ends();
  }

 private:
  Box& at(int box) { return boxes_[static_cast<size_t>(box)]; }
  int parent(int box) const { return boxes_[static_cast<size_t>(box)].parent; }

  // The boxes around `box`, from the root to its parent.
  std::vector<int> around(int box) const {
    std::vector<int> chain;
    for (int outer = parent(box); outer >= 0; outer = parent(outer)) chain.push_back(outer);
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  // The child of `outer` that is or holds `box`; kOutside if none.
  int child_holding(int outer, int box) const {
    while (box >= 0 && parent(box) != outer) box = parent(box);
    return box;
  }

  void size(int box) {
    const std::vector<int>& children = children_[static_cast<size_t>(box)];
    if (children.empty()) return;
    std::map<int, Line> lines;
    for (const Wire& wire : wires_) {
      const int from = child_holding(box, wire.from), to = child_holding(box, wire.to);
      if (from == to) continue;  // Within one child, or not in this box at all.
      Line& line = lines[wire.from];
      line.from = from;
      if (to == kOutside) line.leaves = true;
      if (to != kOutside) line.to.insert(to);
    }
    const Rows& rows = rows_.emplace(box, Rows(boxes_, children, std::move(lines))).first->second;
    at(box).width = std::max(at(box).width, rows.width() + 2 * kPadding);
    at(box).height = std::max(at(box).height, rows.height() + 2 * kPadding + at(box).header);
  }

  Point inner_corner(int box) {
    const double slack = at(box).width - 2 * kPadding - rows_.at(box).width();
    return {at(box).corner.x + kPadding + slack / 2.0,
            at(box).corner.y + kPadding + at(box).header};
  }

  void place_children(int box) {
    const auto rows = rows_.find(box);
    if (rows == rows_.end()) return;
    const Point origin = inner_corner(box);
    for (const Item& item : rows->second.items()) {
      if (item.box == kOutside) continue;
      const Point corner = rows->second.corner(item);
      at(item.box).corner = {origin.x + corner.x, origin.y + corner.y};
    }
  }

  void pass_rows(int box, int source, int first, int end, std::vector<Point>& route) {
    for (int row = first; row < end; ++row) {
      rows_.at(box).pass(source, row, inner_corner(box), route);
    }
  }

  void route(Wire& wire) {
    const std::vector<int> from_chain = around(wire.from), to_chain = around(wire.to);
    size_t shared = 0;
    while (shared < from_chain.size() && shared < to_chain.size() &&
           from_chain[shared] == to_chain[shared]) {
      ++shared;
    }
    const Point start = {at(wire.from).corner.x + at(wire.from).width / 2.0,
                         at(wire.from).corner.y + at(wire.from).height};
    const Point end = {at(wire.to).corner.x + at(wire.to).width / 2.0, at(wire.to).corner.y};
    wire.route = {start};
    for (size_t i = from_chain.size(); i-- > shared;) {
      const Rows& rows = rows_.at(from_chain[i]);
      pass_rows(from_chain[i], wire.from, rows.rank(child_holding(from_chain[i], wire.from)) + 1,
                rows.count(), wire.route);
    }
    const int common = from_chain[shared - 1];
    const Rows& rows = rows_.at(common);
    pass_rows(common, wire.from, rows.rank(child_holding(common, wire.from)) + 1,
              rows.rank(child_holding(common, wire.to)), wire.route);
    for (size_t i = shared; i < to_chain.size(); ++i) {
      const int last = rows_.at(to_chain[i]).rank(child_holding(to_chain[i], wire.to));
      pass_rows(to_chain[i], wire.from, 0, last, wire.route);
    }
    wire.route.push_back(end);
  }

  // Wires into one box enter from left to right as they come.
  void spread_ends() {
    std::map<int, std::vector<Wire*>> into;
    for (Wire& wire : wires_) into[wire.to].push_back(&wire);
    for (auto& [box, wires] : into) {
      std::stable_sort(wires.begin(), wires.end(), [](const Wire* a, const Wire* b) {
        return a->route[a->route.size() - 2].x < b->route[b->route.size() - 2].x;
      });
      for (size_t i = 0; i < wires.size(); ++i) {
        const double share = (static_cast<double>(i) + 1.0) / static_cast<double>(wires.size() + 1);
        wires[i]->route.back().x = at(box).corner.x + at(box).width * share;
      }
    }
  }

  std::vector<Box>& boxes_;
  std::vector<Wire>& wires_;
  std::vector<std::vector<int>> children_;
  std::map<int, Rows> rows_;
};

}  // namespace

void arrange(std::vector<Box>& boxes, std::vector<Wire>& wires) {
  Arranger(boxes, wires).arrange();
}

}  // namespace tessera
