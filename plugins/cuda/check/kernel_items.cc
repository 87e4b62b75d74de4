// SPDX-License-Identifier: Apache-2.0
// Stage 2: every kernel against the CPU. The expected values are computed here, in double precision
// by the reference interpreter, or by the CPU device where bits must be equal. What the virtual GPU
// computed is not stored to compare with: its rounding of approximate functions and its order of
// sums in tensor cores are not a GPU's, so such values would say less than those of the CPU.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/fused_cases.h"
#include "core/check/run_graph.h"
#include "core/devices/cpu/device.h"
#include "core/ops/attention.h"
#include "core/ops/grouped_product.h"
#include "core/ops/random.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "tasks/modes/selfcheck.h"

namespace tessera::cuda {
namespace {

Findings check_op(const std::string& op) {
  std::vector<OpCase> rows = all_op_cases();
  std::erase_if(rows, [&](const OpCase& row) { return row.op->name != op; });
  return check_cases(rows);
}

// Several blocks of queries and keys, grouped heads, packed segments.
std::vector<OpCase> attention_cases(bool tiny) {
  struct Size {
    int batch, seq, heads, kv_heads, head_dim;
  };
  const std::vector<Size> sizes =
      tiny ? std::vector<Size>{{1, 70, 2, 1, 64}}
           : std::vector<Size>{
                 {2, 300, 4, 2, 64}, {1, 256, 6, 6, 64}, {1, 270, 4, 1, 128}, {1, 129, 2, 2, 256}};
  std::vector<OpCase> rows;
  for (const auto& [batch, seq, heads, kv_heads, head_dim] : sizes) {
    const std::string kv = fmt::format("float[\"batch={} key_seq={} kv_heads={} head_dim={}\"]",
                                       batch, seq, kv_heads, head_dim);
    const std::string q =
        fmt::format("float[\"batch={} seq={} heads={} head_dim={}\"]", batch, seq, heads, head_dim);
    const std::string segments = fmt::format("i32[\"batch={} seq={}\"]", batch, seq);
    const std::string key_segments = fmt::format("i32[\"batch={} key_seq={}\"]", batch, seq);
    for (const bool packed : {false, true}) {
      std::vector<std::string> inputs = {q, kv, kv};
      if (packed) inputs.insert(inputs.end(), {segments, key_segments});
      rows.push_back({.op = &kAttentionGradOp, .inputs = inputs, .build = [=](const Tensors& in) {
                        AttentionOptions options{.scale = 0.125};
                        if (packed) options.segment_ids = in[3], options.key_segment_ids = in[4];
                        const Tensor out = attention(in[0], in[1], in[2], options);
                        Graph& graph = *out.graph();
                        Tensors results = traced_gradient(graph, Node(graph.nodes().back()));
                        results.resize(3);  // Segments have no gradient.
                        results.push_back(out);
                        return CaseResults(results);
                      }});
    }
  }
  return rows;
}

// Rows that are chosen at random for all groups but one, in small and, where not tiny, in large
// tiles.
std::vector<OpCase> grouped_cases(bool tiny) {
  struct Size {
    int rows, embed, mlp;
  };
  const std::vector<Size> sizes =
      tiny ? std::vector<Size>{{40, 24, 33}}
           : std::vector<Size>{{300, 70, 136}, {2048, 32, 1152}, {100, 520, 1152}};
  constexpr int kGroups = 4;
  std::vector<OpCase> rows;
  for (const auto& [count, embed, mlp] : sizes) {
    const std::string x = fmt::format("float[\"row={} embed={}\"]", count, embed);
    const std::string ids = fmt::format("i32[\"row={}\"]", count);
    for (const std::string& matrix :
         {fmt::format("embed={} mlp={}", embed, mlp), fmt::format("mlp={} embed={}", mlp, embed)})
      add_case(rows, kGroupedProductOp,
               {x, fmt::format("float[\"experts={} {}\"]", kGroups, matrix), ids},
               [](const Tensors& in) {
                 return grouped_product(in[0], in[1], in[2], "experts", over("embed"));
               })
          .ids = kGroups - 1;
    add_case(rows, kGroupedOuterProductOp,
             {x, fmt::format("float[\"row={} mlp={}\"]", count, mlp), ids},
             [](const Tensors& in) {
               return grouped_outer_product(in[0], in[1], in[2], {"experts", kGroups, {}});
             })
        .ids = kGroups - 1;
  }
  return rows;
}

// Products of this layout with every epilogue, at sizes that no tile divides and some that tiles
// do.
std::vector<OpCase> product_cases(const std::string& layouts, bool fp8, bool tiny) {
  std::vector<FusedProducts> sizes = {{1, 8, 16}, {33, 17, 70}, {128, 256, 64}, {200, 136, 1000}};
  if (tiny) sizes = {{19, 24, 21}};
  std::vector<OpCase> rows;
  for (FusedProducts& each : sizes) {
    each.layouts = layouts;
    each.fp8 = fp8;
    std::ranges::move(fused_product_cases(each), std::back_inserter(rows));
  }
  return rows;
}

// Random numbers have the CPU's bits: initial weights and dropout masks must not depend on the
// device.
Findings check_random_bits() {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu(), cpu = make_cpu_device(1);
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kRandomUniformOp && row.op != &kDropoutOp) continue;
    note_failures(findings, case_name(row, DType::kF32), [&] {
      const Graph graph = traced_case(row, DType::kF32, Mesh());
      const ReferenceInputs inputs = rounded(graph, sample_inputs(graph, row.ids));
      if (run_graph(graph, inputs, *gpu) != run_graph(graph, inputs, *cpu))
        fail("the GPU's bits are not the CPU's");
    });
  }
  return findings;
}

Findings check_steps(DType dtype) {
  Findings findings;
  const StepBits first = selfcheck_steps(*make_gpu(), dtype);
  const std::string difference = bit_difference(selfcheck_steps(*make_gpu(), dtype), first);
  if (!difference.empty()) findings.failures.push_back("run twice: " + difference);
  const StepBits expected = selfcheck_steps(*make_cpu_device(1), dtype);
  const double tolerance = dtype == DType::kF32 ? 1e-5 : 0x1p-7;
  for (size_t i = 0; i < first.losses.size(); ++i) {
    findings.rows.push_back({{"step", static_cast<double>(i + 1)},
                             {"loss", first.losses[i]},
                             {"loss on the CPU", expected.losses[i]}});
    if (!(std::abs(first.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]))
      findings.failures.push_back(fmt::format("loss of step {}: got {}, expected {}", i + 1,
                                              first.losses[i], expected.losses[i]));
  }
  return findings;
}

}  // namespace

Findings check_cases(const std::vector<OpCase>& rows) {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu();
  double largest = 0.0, cases = 0.0;
  for (const OpCase& row : rows) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      ++cases;
      note_failures(findings, case_name(row, dtype), [&] {
        const CaseReport report = check_case(row, dtype, *gpu);
        if (!report.mismatch.empty()) fail("{}", report.mismatch);
        largest = std::max(largest, report.error);
      });
    }
  }
  findings.rows.push_back({{"cases", cases}, {"largest error, of its tolerance", largest}});
  return findings;
}

std::vector<Item> kernel_items(const CheckOptions& options) {
  std::vector<Item> items;
  std::set<std::string> seen;
  for (const OpCase& row : all_op_cases()) {
    const std::string op(row.op->name);
    if (seen.insert(op).second) items.push_back({2, "op " + op, [op] { return check_op(op); }});
  }
  const bool tiny = options.tiny;
  items.push_back({2, "random bits", check_random_bits});
  items.push_back({2, "attention shapes", [tiny] { return check_cases(attention_cases(tiny)); }});
  items.push_back({2, "grouped products", [tiny] { return check_cases(grouped_cases(tiny)); }});
  for (const bool fp8 : {false, true}) {
    for (const std::string layouts : {"nn", "nt", "tn", "tt"}) {
      const std::string name = fmt::format("products{} {}", fp8 ? " of 8 bits" : "", layouts);
      items.push_back({2, name, [=] { return check_cases(product_cases(layouts, fp8, tiny)); }});
    }
  }
  items.push_back({2, "products unpacked", [] { return check_cases(fused_packed_cases()); }});
  for (const DType dtype : {DType::kF32, DType::kBF16})
    items.push_back({2, fmt::format("training steps {}", dtype_name(dtype)),
                     [dtype] { return check_steps(dtype); }});
  return items;
}

}  // namespace tessera::cuda
