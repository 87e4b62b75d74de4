// SPDX-License-Identifier: Apache-2.0
// Ops at the sizes of models, for timings of single kernels: bench_kernels on the CPU, gpu_check on
// a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/check/op_cases.h"
#include "core/graph/graph.h"

namespace tessera {

struct BenchAttention {
  int64_t batch = 1, seq = 1, heads = 1, kv_heads = 1, head_dim = 1;
  int64_t window = 0;  // 0: none.
};

struct BenchRecurrence {
  int64_t batch = 1, seq = 1, heads = 1, key_dim = 1, value_dim = 1;
};

// A matrix product x["tokens inputs"] · w["inputs outputs"].
struct BenchProduct {
  int64_t tokens = 1, inputs = 1, outputs = 1;
};

struct BenchSizes {
  int64_t batch = 8, seq = 512, embed = 768, vocab = 50257;
  int64_t loss_rows = 1024;    // Rows of cross_entropy.
  int64_t weights = 16 << 20;  // Weights of adam_update.
  int64_t routed_rows = 4096, experts = 8, expert_embed = 256, expert_mlp = 1024;
  std::vector<BenchAttention> attention = {
      {8, 256, 8, 8, 32}, {4, 512, 12, 12, 64}, {1, 2048, 16, 4, 128}, {1, 2048, 16, 4, 128, 512}};
  std::vector<BenchRecurrence> recurrences = {{1, 2048, 8, 128, 128}};
  std::vector<BenchProduct> products = {};
};

struct BenchCase {
  std::string name;                 // "attention/bf16/b4/s512/h12/kv12/d64"
  std::vector<std::string> inputs;  // Types.
  std::function<void(const Tensors&)> trace;
  bool gradient = true;     // Whether to add the gradient of the first node.
  int64_t integers = 1000;  // Exclusive bound of integer inputs.
};

std::vector<BenchCase> bench_cases(const BenchSizes& sizes = {});

// Returns the graph of a case, with the gradient. Every result is an output.
Graph traced_bench(const BenchCase& row);

}  // namespace tessera
