// SPDX-License-Identifier: Apache-2.0
// Stage 3: the launches of stage 1 once more under compute-sanitizer. initcheck is left out: the
// device zeroes all memory that it allocates.
#include "plugins/cuda/check/items.h"

namespace tessera::cuda {

std::vector<Item> sanitizer_items() {
  std::vector<Item> items;
  for (const char* const tool : {"memcheck", "racecheck", "synccheck"})
    for (const std::string& family : op_families())
      items.push_back({.stage = 3,
                       .name = tool + (" " + family),
                       .run = [family] { return launch_family(family); },
                       .tool = tool});
  return items;
}

}  // namespace tessera::cuda
