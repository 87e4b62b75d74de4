// SPDX-License-Identifier: Apache-2.0
// Checks the attention kernels of any device against their decomposition.
#pragma once

#include <string>
#include <vector>

#include "core/ops/attention.h"
#include "tests/support/kernel_check.h"

namespace tessera {

struct AttentionSizes {
  int batch, queries, keys, heads, kv_heads, head_dim;
};

// Types of q, k, v and of the segment ids of queries and keys: inputs x, y, z, u, v of a Trial.
std::vector<std::string> attention_types(const AttentionSizes& sizes, const std::string& dtype);

// Types of q, key, value and starts of a cache: inputs x, y, z and u.
std::vector<std::string> cache_types(const AttentionSizes& sizes, const std::string& dtype);

// "" or the first error of the kernels of attention and its gradient. `segments`: with segment ids.
std::string attention_mismatch(const AttentionSizes& sizes, const std::string& dtype,
                               AttentionOptions options, bool segments, const KernelCheck& check);

}  // namespace tessera
