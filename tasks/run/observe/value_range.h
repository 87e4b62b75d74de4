// SPDX-License-Identifier: Apache-2.0
// The arrays of a launch on the host: their bytes, their range, and elements that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/graph/graph.h"

namespace tessera {

using ArrayBytesList = std::vector<std::vector<std::byte>>;

// Copies the values at these addresses to the host, by the launch's own stream, whose work is done.
ArrayBytesList read_arrays(const Graph& graph, const std::vector<ValueId>& values,
                           std::span<const DeviceAddress> addresses, Stream& stream);

// Whether all elements are finite, quickly. `bytes` are type.bytes() bytes.
bool all_finite(const Type& type, std::span<const std::byte> bytes);

// "-3.1 to 2.25", or "4 of 128 elements are not finite; the first, [0, 3], is nan; the others -3.1
// to 2.25". The elements are in row-major order.
std::string range_text(const Type& type, const std::vector<double>& elements);

// The index along each axis of the element at this place in row-major order.
std::vector<int64_t> index_of(const Type& type, int64_t position);

}  // namespace tessera
