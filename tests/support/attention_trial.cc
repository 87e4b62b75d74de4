// SPDX-License-Identifier: Apache-2.0
#include "tests/support/attention_trial.h"

#include <fmt/core.h>

#include "core/graph/trace.h"
#include "tests/support/trial.h"

namespace tessera {

std::vector<std::string> attention_types(const AttentionSizes& sizes, const std::string& dtype) {
  const std::string kv = fmt::format("{}[\"batch={} key_seq={} kv_heads={} head_dim={}\"]", dtype,
                                     sizes.batch, sizes.keys, sizes.kv_heads, sizes.head_dim);
  return {fmt::format("{}[\"batch={} seq={} heads={} head_dim={}\"]", dtype, sizes.batch,
                      sizes.queries, sizes.heads, sizes.head_dim),
          kv, kv, fmt::format("i32[\"batch={} seq={}\"]", sizes.batch, sizes.queries),
          fmt::format("i32[\"batch={} key_seq={}\"]", sizes.batch, sizes.keys)};
}

std::vector<std::string> cache_types(const AttentionSizes& sizes, const std::string& dtype) {
  const std::string kv = fmt::format("{}[\"batch={} kv_heads={} key_seq={} head_dim={}\"]", dtype,
                                     sizes.batch, sizes.kv_heads, sizes.keys, sizes.head_dim);
  return {fmt::format("{}[\"batch={} seq={} heads={} head_dim={}\"]", dtype, sizes.batch,
                      sizes.queries, sizes.heads, sizes.head_dim),
          kv, kv, fmt::format("i32[\"batch={}\"]", sizes.batch)};
}

std::string attention_mismatch(const AttentionSizes& sizes, const std::string& dtype,
                               AttentionOptions options, bool segments, const KernelCheck& check) {
  Trial trial({}, attention_types(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  if (segments) options.segment_ids = in[3], options.key_segment_ids = in[4];
  attention(in[0], in[1], in[2], options);
  traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  return kernel_mismatch(trial.graph(), check);
}

}  // namespace tessera
