// SPDX-License-Identifier: Apache-2.0
// A composition: a small model with features, on a mesh whose axes have roles. It is drawn from a
// number, or written as text, such as
//   seed=7 layers=2 features=gqa,dropout mesh=fsdp:2,tensor:3 stages=2:1f1b
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A mesh axis: a row of roles() and its size; two slices if its outer half is a DCN part.
struct AxisUse {
  std::string role;
  int64_t size = 1;
  bool slices = false;  // Written "fsdp:4/slices".
  bool operator==(const AxisUse&) const = default;
};

struct Composition {
  uint32_t seed = 0;  // Seed of batches and of what features choose.
  int64_t layers = 2;
  std::vector<std::string> features;  // Rows of features(), in their order.
  std::vector<AxisUse> mesh;          // At most three.
  int64_t stages = 1;
  std::string schedule;  // A row of schedules(); "" for one stage.

  bool has(std::string_view feature) const;
  int64_t devices() const;
  std::string text() const;
  bool operator==(const Composition&) const = default;
};

// Reads text(); a single number is that of drawn_composition(). Error naming what is unknown.
Composition parse_composition(std::string_view text);

// Draws a composition; a number always gives the same.
Composition drawn_composition(uint32_t number);

// Smaller compositions, each without one part of this one; empty if there is nothing to leave out.
std::vector<Composition> smaller(const Composition& composition);

// Leaves out parts of a composition as long as `fails` is true of what remains.
template <typename Fails>
Composition shrunk(Composition composition, const Fails& fails) {
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (Composition& candidate : smaller(composition)) {
      if (!fails(candidate)) continue;
      composition = std::move(candidate);
      is_smaller = true;
      break;
    }
  }
  return composition;
}

}  // namespace tessera
