// SPDX-License-Identifier: Apache-2.0
// Numbers that C++ tests and the Python scripts of golden files both compute.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// Numbers in [-1, 1), a function of (name, index) only, as `noise` in tests/golden/models.py.
std::vector<double> golden_noise(std::string_view name, int64_t count);

}  // namespace tessera
