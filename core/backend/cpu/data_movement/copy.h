// SPDX-License-Identifier: Apache-2.0
// Copies between strided arrays, blocked where rows become columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cpu/space.h"
#include "core/backend/cpu/team.h"

namespace tessera {

// space.operands[0] are the strides of the source, [1] those of the destination; `from` and `to`
// point at their first elements.
void strided_copy(const Space& space, int64_t element_bytes, const std::byte* from, std::byte* to,
                  ThreadTeam& team);

// The element `bits` everywhere; space.operands[0] are the destination's strides.
void strided_fill(const Space& space, int64_t element_bytes, uint64_t bits, std::byte* to,
                  ThreadTeam& team);

}  // namespace tessera
