// SPDX-License-Identifier: Apache-2.0
// What a drawing of a graph shows, and where: a box a node in the box of its layer, labels for
// inputs, wires for values. Says nothing of colours and files; svg.cc does.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/layered.h"

namespace tessera {

// Of text; boxes are made to fit it.
inline constexpr double kTitleSize = 11.0;
inline constexpr double kTypeSize = 9.0;
inline constexpr double kLineHeight = 13.0;
inline constexpr double kGlyph = 0.605;  // Width of a monospaced character, in its size.

enum class Look {
  kContraction,
  kElementwise,
  kReduction,
  kDataMovement,
  kReshard,
  kComposite,
  kParameter,
  kInput,
  kOutput,
  kElsewhere,  // Stands for what another phase made.
  kLayer
};

struct Face {
  Look look = Look::kLayer;
  std::string title;
  std::vector<std::string> lines;  // Below the title, small.
  std::string tip;                 // Shown under the pointer; empty: the title.
};

struct Scene {
  std::vector<Box> boxes;
  std::vector<Face> faces;  // Of each box.
  std::vector<Wire> wires;
  std::vector<bool> pending;  // Of each wire: it carries a pending sum or maximum.
};

Scene make_scene(const Graph& graph);

}  // namespace tessera
