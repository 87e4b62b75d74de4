// SPDX-License-Identifier: Apache-2.0
// A layered drawing of nested boxes: each box's children in rows, wires running downwards (after
// Sugiyama et al., 1981). Geometry only; svg.cc draws.
#pragma once

#include <vector>

namespace tessera {

struct Point {
  double x = 0.0;
  double y = 0.0;
};

// Box 0 is the root. A parent comes before its children, and boxes in the order they compute.
struct Box {
  int parent = -1;
  double width = 0.0;  // The least width and height; a parent grows around its children.
  double height = 0.0;
  double header = 0.0;  // Room at the top of a parent, for its title.
  Point corner;         // Top left; set by `arrange`.
};

struct Wire {
  int from = 0;
  int to = 0;
  std::vector<Point> route;  // Set by `arrange`: pairs of points joined by straight verticals, with
                             // curves between the pairs.
};

// Places all boxes and routes all wires. Wires into one box enter side by side, in the order in
// which they come.
void arrange(std::vector<Box>& boxes, std::vector<Wire>& wires);

}  // namespace tessera
