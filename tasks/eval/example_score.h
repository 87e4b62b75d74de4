// SPDX-License-Identifier: Apache-2.0
// What one metric says of one example, or of many: a sum over labels and what they weigh.
#pragma once

namespace tessera {

struct ExampleScore {
  double sum = 0.0;
  double weight = 0.0;
};

}  // namespace tessera
