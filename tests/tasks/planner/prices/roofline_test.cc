// SPDX-License-Identifier: Apache-2.0
// Prices of launches against numbers computed by hand from the datasheets and the constants that
// roofline.cc names.
#include "tasks/planner/prices/roofline.h"

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/grouped_product.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/support/adam_step.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Hardware& h200() {
  static const Hardware hardware = hardware_named("h200");
  return hardware;
}

using Build = std::function<Tensor(const std::vector<Tensor>&)>;

// The lowered and fused graph of a case on a mesh.
Graph compiled(const Mesh& mesh, const std::vector<std::string>& types, const Build& build) {
  Trial trial(mesh, types);
  output("y", build(trial.inputs()));
  return fuse(fuse_norms(fuse_products(lower(trial.graph(), mesh))));
}

// The cost of the graph's last node on an H200.
LaunchCost last_cost(const std::vector<std::string>& types, const Build& build,
                     const Mesh& mesh = {}) {
  const Graph graph = compiled(mesh, types, build);
  return launch_cost(graph, *std::prev(graph.nodes().end()), mesh, h200());
}

double microseconds(const LaunchCost& cost) { return 1e6 * cost.seconds; }

constexpr double kGap = 1.2;  // Microseconds.

TEST_CASE("a product takes as long as its tiles, relative to 8192 x 8192 x 8192") {
  const Hardware& gpu = h200();
  const auto seconds = [&](int64_t m, int64_t n, int64_t k, DType output = DType::kBF16) {
    return product_seconds({m, n, k, 1, DType::kBF16, output}, gpu);
  };
  // 1.0995 TFLOP at 790 TFLOP/s.
  REQUIRE(seconds(8192, 8192, 8192) == Approx(1391.8e-6).epsilon(1e-3));
  // One round of 132 tiles of 128 x 256, of 16 rounds above: (4096 + 450) / (16 (8192 + 450)).
  REQUIRE(seconds(128 * 132, 256, 4096) == Approx(45.76e-6).epsilon(1e-3));
  // One more tile begins a second round, of 128 x 128: (2 of 3 rounds, 1.1 times as long).
  REQUIRE(seconds(128 * 133, 256, 4096) > 1.5 * seconds(128 * 132, 256, 4096));
  // f32 results take longer to store: 4096 + 1125.
  REQUIRE(seconds(128 * 132, 256, 4096, DType::kF32) == Approx(52.55e-6).epsilon(1e-3));
  // Few tiles with long sums are divided: 18 tiles, 8 parts each, 2 rounds of 8192 + 1125 sums.
  REQUIRE(seconds(768, 768, 65536, DType::kF32) < 0.3 * 65536.0 / 8192.0 * 1391.8e-6 / 16.0);
  // Never above the rate of large products.
  REQUIRE(seconds(65536, 4096, 65536) >= 2.0 * 65536 * 4096 * 65536 / 790.1e12);
}

TEST_CASE("without tiles, products of all shapes run at the same share of the peak") {
  const Hardware tpu = hardware_named("tpu_v4");
  for (const ProductSize& size :
       {ProductSize{8192, 8192, 8192}, ProductSize{64, 64, 65536}, ProductSize{129, 257, 64, 3}})
    REQUIRE(size.flops() / product_seconds(size, tpu) == Approx(790.0 / 989.4 * 275e12));
  // One GPU with and without tiles.
  Hardware gpu = h200();
  const ProductSize small{512, 512, 512};
  const double with_tiles = product_seconds(small, gpu);
  gpu.tiles.reset();
  REQUIRE(with_tiles > 2.0 * product_seconds(small, gpu));
}

TEST_CASE("arithmetic outside of products has a rate of its own where the file gives one") {
  const auto priced = [](const Hardware& hardware) {
    const Graph graph = compiled(Mesh(), {"bf16[\"row=4096 column=4096\"]"},
                                 [](const auto& x) { return sin(sin(sin(sin(sin(sin(x[0])))))); });
    return launch_cost(graph, *std::prev(graph.nodes().end()), Mesh(), hardware);
  };
  Hardware slow = h200();
  slow.peak_flops.elementwise = 0.1 * slow.peak_flops.f32;
  const double overhead = slow.launch_overhead;
  REQUIRE(priced(slow).limit == Limit::kArithmetic);
  REQUIRE(priced(slow).seconds - overhead == Approx(10.0 * (priced(h200()).seconds - overhead)));
}

TEST_CASE("efficiency follows nvMatmulHeuristics on the products of GPT-2 and Llama") {
  // Rates relative to 8192 x 8192 x 8192, as version 0.1.0.27 gives them for an H200 SXM.
  struct Row {
    int64_t m, n, k;
    bool f32;
    double rate;
  };
  for (const Row& row : {Row{65536, 2304, 768, false, 0.682}, Row{65536, 768, 3072, false, 0.905},
                         Row{768, 768, 65536, true, 0.654}, Row{65536, 50304, 768, false, 0.703},
                         Row{65536, 2816, 1024, false, 0.752}, Row{2816, 1024, 65536, true, 0.959},
                         Row{16384, 6400, 1600, false, 0.827}, Row{1600, 1600, 16384, true, 0.749},
                         Row{32768, 5632, 2048, false, 0.889}, Row{32768, 2560, 6912, false, 0.991},
                         Row{2560, 2560, 32768, true, 0.819}}) {
    CAPTURE(row.m, row.n, row.k);
    const ProductSize size{row.m, row.n,        row.k,
                           1,     DType::kBF16, row.f32 ? DType::kF32 : DType::kBF16};
    const double rate = size.flops() / product_seconds(size, h200());
    REQUIRE(rate / 790.0e12 == Approx(row.rate).epsilon(0.15));
  }
}

TEST_CASE("other launches are priced by the bytes of their operands and results") {
  const std::string f32 = "f32[\"row=1024 column=1024\"]";
  const LaunchCost sum = last_cost({f32, f32}, [](const auto& x) { return x[0] + x[1]; });
  REQUIRE(sum.bytes == 3 * 4 * 1024 * 1024);
  // 4.8 TB/s · 4.3/4.8 / 1.1 = 3.909 TB/s.
  REQUIRE(microseconds(sum) == Approx(3.219 + kGap).epsilon(1e-3));
  REQUIRE(sum.limit == Limit::kMemory);
  // A fused launch reads and writes once.
  const LaunchCost fused =
      last_cost({f32, f32}, [](const auto& x) { return exp(x[0] + x[1]) * x[0]; });
  REQUIRE(fused.bytes == sum.bytes);
  const LaunchCost rows = last_cost({"f32[\"vocab=50304 embed=768\"]", "i32[\"row=1024\"]"},
                                    [](const auto& x) { return gather(x[0], x[1], "vocab"); });
  REQUIRE(rows.bytes == 2 * 4 * 1024 * 768 + 4 * 1024);  // Not the whole table.
  const LaunchCost small = last_cost({"f32[\"row=8\"]"}, [](const auto& x) { return exp(x[0]); });
  REQUIRE(small.limit == Limit::kLaunch);
  REQUIRE(microseconds(small) == Approx(kGap).epsilon(1e-2));
  // 2^24 elements, six sines of 20 additions each: 2.01e9 / 30.9e12.
  const LaunchCost sines = last_cost({"bf16[\"row=4096 column=4096\"]"}, [](const auto& x) {
    return sin(sin(sin(sin(sin(sin(x[0]))))));
  });
  REQUIRE(sines.limit == Limit::kArithmetic);
  REQUIRE(microseconds(sines) == Approx(65.1 + kGap).epsilon(1e-2));
}

TEST_CASE("attention runs at the published rates of cuDNN") {
  const std::vector<std::string> types = {
      "bf16[\"batch=4 seq=2048 heads=16 head_dim=128\"]",
      "bf16[\"batch=4 key_seq=2048 kv_heads=16 head_dim=128\"]",
      "bf16[\"batch=4 key_seq=2048 kv_heads=16 head_dim=128\"]"};
  const LaunchCost causal =
      last_cost(types, [](const auto& x) { return attention(x[0], x[1], x[2], {}); });
  REQUIRE(causal.flops == Approx(68.72e9).epsilon(1e-3));
  // 989.4 · 0.67 · 2048/(2048 + 148) · 0.8 = 494.6 TFLOP/s.
  REQUIRE(microseconds(causal) == Approx(138.9 + kGap).epsilon(1e-2));
  const LaunchCost whole = last_cost(types, [](const auto& x) {
    return attention(x[0], x[1], x[2], {.mask = AttentionMask::kFull});
  });
  // The rate that the paper states.
  REQUIRE(whole.flops / whole.seconds == Approx(617e12).epsilon(0.02));
}

TEST_CASE("grouped products are priced as the products of each group's rows") {
  const std::vector<std::string> types = {"bf16[\"row=16384 embed=2048\"]",
                                          "bf16[\"experts=8 embed=2048 mlp=4096\"]",
                                          "i32[\"row=16384\"]", "bf16[\"row=16384 mlp=4096\"]"};
  const LaunchCost forward = last_cost(types, [](const auto& x) {
    return grouped_product(x[0], x[1], x[2], "experts", over("embed"));
  });
  const ProductSize of_a_group{2048, 4096, 2048, 8};
  REQUIRE(forward.flops == of_a_group.flops());
  REQUIRE(microseconds(forward) == Approx(1e6 * product_seconds(of_a_group, h200()) + kGap));
  const LaunchCost gradient = last_cost(types, [](const auto& x) {
    return grouped_outer_product(x[0], x[3], x[2], {"experts", 8, {}});
  });
  REQUIRE(gradient.flops == of_a_group.flops());
  REQUIRE(microseconds(gradient) ==
          Approx(1e6 * product_seconds({2048, 4096, 2048, 8}, h200()) + kGap));
}

TEST_CASE("copies around products, and epilogues that cuBLASLt lacks, are priced") {
  const std::vector<std::string> types = {"bf16[\"row=4096 inner=1024\"]",
                                          "bf16[\"inner=1024 column=4096\"]"};
  const auto product = [](const auto& x) { return einsum(x[0], x[1], over("inner")); };
  REQUIRE(last_cost(types, product).copies == 0.0);
  const LaunchCost gelu = last_cost(types, [&](const auto& x) { return gelu_tanh(product(x)); });
  REQUIRE(gelu.copies == 0.0);
  REQUIRE(gelu.flops == 2.0 * 4096 * 1024 * 4096);
  const LaunchCost silu_pass = last_cost(types, [&](const auto& x) { return silu(product(x)); });
  REQUIRE(silu_pass.copies == Approx(2 * 2 * 4096 * 4096 / 3.909e12 + 1.2e-6).epsilon(1e-3));
  // The sum is over the middle axis of x, which is not a matrix.
  const LaunchCost packed = last_cost(
      {"bf16[\"outer=64 inner=1024 row=64\"]", "bf16[\"inner=1024 column=4096\"]"}, product);
  REQUIRE(packed.copies > 0.0);
}

TEST_CASE("collectives are priced by bytes and links") {
  const auto gathered = [](const Mesh& mesh) {
    return last_cost(
        {"f32[\"row/data=4096 column=4096\"]"},
        [](const auto& x) { return reshard(x[0], "row column"); }, mesh);
  };
  const LaunchCost within = gathered(Mesh({{"data", 4, 1}}));
  REQUIRE(within.limit == Limit::kLinks);
  REQUIRE(within.bytes == 48 * 1024 * 1024);
  REQUIRE(microseconds(within) == Approx(136.0 + 10.0).epsilon(1e-3));  // 370 GB/s.
  // Two slices: a third of the bytes crosses the network, at 41.1 GB/s.
  REQUIRE(microseconds(gathered(Mesh({{"data", 2, 2}}))) ==
          Approx(90.7 + 408.1 + 20.0).epsilon(1e-3));
}

TEST_CASE("hops of a ring grow with the devices, those of a tree with their logarithm") {
  const auto latency = [](std::optional<LinkTopology> topology, const Mesh& mesh, bool sums) {
    Hardware hardware = h200();
    hardware.link.topology = topology;
    hardware.network.topology = topology;
    const Graph graph = compiled(
        mesh, {sums ? "f32[\"row=16 column/data=64\"]" : "f32[\"row/data=16 column=64\"]"},
        [sums](const auto& x) {
          return sums ? reshard(reduce_sum(x[0], "column"), "row") : reshard(x[0], "row column");
        });
    const Node& last = *std::prev(graph.nodes().end());
    return 1e6 * launch_cost(graph, last, mesh, hardware).seconds;
  };
  const Mesh eight({{"data", 8, 1}}), slices({{"data", 8, 2}});
  // Next to no bytes; a latency of 10 us within a slice and 20 us between them.
  REQUIRE(latency(std::nullopt, eight, false) == Approx(10.0).epsilon(0.01));
  REQUIRE(latency(LinkTopology::kRing, eight, false) == Approx(7 * 10.0).epsilon(0.01));
  REQUIRE(latency(LinkTopology::kTree, eight, false) == Approx(3 * 10.0).epsilon(0.01));
  // An all-reduce has twice the steps of an all-gather.
  REQUIRE(latency(LinkTopology::kRing, eight, true) == Approx(2 * 7 * 10.0).epsilon(0.01));
  REQUIRE(latency(LinkTopology::kTree, eight, true) == Approx(2 * 3 * 10.0).epsilon(0.01));
  // Sixteen devices in two slices: hops within a slice, then one between them.
  REQUIRE(latency(std::nullopt, slices, false) == Approx(20.0).epsilon(0.01));
  REQUIRE(latency(LinkTopology::kRing, slices, false) == Approx(7 * 10.0 + 20.0).epsilon(0.01));
  REQUIRE(latency(LinkTopology::kTree, slices, false) == Approx(3 * 10.0 + 20.0).epsilon(0.01));
}

// Returns a processor with invented numbers.
Hardware processor() {
  Hardware cpu = h200();
  cpu.kind = HardwareKind::kCpu;
  cpu.tiles.reset();
  cpu.launch_overhead = 1e-6;
  cpu.peak_flops = {.bf16 = 2e11, .f32 = 1e11};
  cpu.memory.copies = std::vector<CopyPoint>{{1 << 16, 64e9}, {1 << 20, 16e9}};
  cpu.products =
      ProductCurve{.f32 = std::vector<ProductPoint>{{256, 256, 256, 0.8}, {16, 256, 256, 0.2}},
                   .bf16 = std::nullopt};
  return cpu;
}

TEST_CASE("products are interpolated on a curve of measured efficiency") {
  const Hardware cpu = processor();
  const auto share = [&](int64_t m, int64_t n, int64_t k, DType dtype = DType::kF32) {
    return share_on_curve({m, n, k, 1, dtype, dtype}, *cpu.products);
  };
  REQUIRE(share(256, 256, 256) == 0.8);
  REQUIRE(share(16, 256, 256) == 0.2);
  // In the middle of both, two doublings from each: their geometric mean.
  REQUIRE(share(64, 256, 256) == Approx(0.4));
  // One doubling from one and three from the other, with weights 1 and 1/81.
  REQUIRE(share(128, 256, 256) == Approx(0.8 * std::pow(0.25, 1.0 / 82.0)));
  // The points of f32 count for bf16, as shares of its own peak.
  REQUIRE(share(16, 256, 256, DType::kBF16) == 0.2);
  const ProductSize size{16, 256, 256, 3, DType::kBF16, DType::kBF16};
  REQUIRE(product_seconds(size, cpu) == Approx(2.0 * 3 * 16 * 256 * 256 / (0.2 * 2e11)));
}

TEST_CASE("launches that fit into caches move at the rate of copies of their size") {
  const Hardware cpu = processor();
  REQUIRE(reachable_bandwidth(cpu, 1000.0) == 64e9);
  REQUIRE(reachable_bandwidth(cpu, 1 << 16) == 64e9);
  REQUIRE(reachable_bandwidth(cpu, 1 << 18) == Approx(32e9));  // Half way, in logarithms.
  REQUIRE(reachable_bandwidth(cpu, 1e12) == 16e9);
  const auto seconds = [&](const std::string& rows) {
    const std::string type = "f32[\"row=" + rows + " column=64\"]";
    const Graph graph = compiled(Mesh(), {type, type}, [](const auto& x) { return x[0] + x[1]; });
    return launch_cost(graph, graph.nodes().back(), Mesh(), cpu).seconds;
  };
  REQUIRE(seconds("1366") == Approx(3 * 4 * 64 * 1366 / 16e9 + 1e-6).epsilon(1e-3));
  REQUIRE(seconds("64") == Approx(3 * 4 * 64 * 64 / 64e9 + 1e-6).epsilon(1e-3));
}

TEST_CASE("a rate of an op's kernels is its price where memory is faster") {
  Hardware cpu = processor();
  cpu.kernels["exp"] = {.f32 = 1e9, .bf16 = std::nullopt};
  cpu.kernels["fused"] = {.f32 = 2e9, .bf16 = std::nullopt};
  const auto seconds = [&](const Build& build) {
    const Graph graph = compiled(Mesh(), {"f32[\"row=64 column=64\"]"}, build);
    const LaunchCost cost = launch_cost(graph, graph.nodes().back(), Mesh(), cpu);
    REQUIRE(cost.limit == Limit::kArithmetic);
    return cost.seconds - 1e-6;
  };
  const double exps = 64.0 * 64.0 * kExpOp.element.cost;
  REQUIRE(seconds([](const auto& x) { return exp(x[0]); }) == Approx(exps / 1e9));
  // Other elementwise ops, and several of them, run as fused loops do.
  REQUIRE(seconds([](const auto& x) { return exp(exp(x[0])); }) == Approx(2.0 * exps / 2e9));
  const double tanhs = 64.0 * 64.0 * kTanhOp.element.cost;
  REQUIRE(seconds([](const auto& x) { return tanh(x[0]); }) == Approx(tanhs / 2e9));
}

TEST_CASE("attention's rate depends on the width of heads") {
  Hardware cpu = processor();
  cpu.kernels["attention"] = {.f32 = 1e9, .bf16 = std::nullopt, .start = 32.0};
  const auto seconds = [&](const std::string& width) {
    const std::string type = " heads=2 head_dim=" + width + "\"]";
    const Graph graph =
        compiled(Mesh(),
                 {"f32[\"batch=1 seq=64" + type,
                  "f32[\"batch=1 key_seq=64 kv_heads=2 head_dim=" + width + "\"]",
                  "f32[\"batch=1 key_seq=64 kv_heads=2 head_dim=" + width + "\"]"},
                 [](const auto& x) { return attention(x[0], x[1], x[2], {.scale = 0.125}); });
    const LaunchCost cost = launch_cost(graph, graph.nodes().back(), Mesh(), cpu);
    return (cost.seconds - 1e-6) / cost.flops;
  };
  REQUIRE(seconds("32") == Approx(2e-9));    // 1 + 32/32.
  REQUIRE(seconds("64") == Approx(1.5e-9));  // 1 + 32/64.
}

// Device 1, a stage, receives a value of this type from the stage before and sends it to `peer`.
Graph relay(const std::string& type, const Mesh& mesh, int64_t peer) {
  Trial trial(mesh, {});
  const Type x = parse_type(type);
  const NodeId received = trial.graph().add_node(receive_node(x, "stage", 0, "h"), {x});
  const ValueId value = trial.graph().node(received).outputs[0];
  trial.graph().add_node(send_node(value, "stage", peer, "h"), {});
  return lower(trial.graph(), mesh, 1);
}

TEST_CASE("transfers between stages are priced at both ends") {
  const Mesh mesh({{"stage", 2, 2}});
  const Graph graph = relay("f32[\"row=4096 column=4096\"]", mesh, 2);
  const LaunchCost receive = launch_cost(graph, graph.nodes().front(), mesh, h200());
  const LaunchCost send = launch_cost(graph, graph.nodes().back(), mesh, h200());
  REQUIRE(send.bytes == 64 * 1024 * 1024);
  REQUIRE(receive.bytes == send.bytes);
  REQUIRE(microseconds(receive) == Approx(181.4 + 10.0).epsilon(1e-3));  // 370 GB/s.
  REQUIRE(microseconds(send) == Approx(1632.8 + 20.0).epsilon(1e-3));    // Across slices.
}

// Nodes that become launches, in loops too.
void price_all(const Graph& graph, const Mesh& mesh, std::set<const OpDef*>& priced) {
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) {
      price_all(*node.bodies[0], mesh, priced);
      continue;
    }
    const LaunchCost cost = launch_cost(graph, node, mesh, h200());
    CAPTURE(node.op->name, cost.seconds, cost.bytes);
    REQUIRE(std::isfinite(cost.seconds));
    REQUIRE(cost.seconds >= 1e-6);
    REQUIRE(cost.seconds < 1e-3);  // The cases are small.
    REQUIRE(cost.bytes > 0.0);
    priced.insert(node.op);
  }
}

TEST_CASE("every op has a price") {
  std::set<const OpDef*> priced;
  const Mesh one = Mesh::standard({1, 1, 1});
  for (const OpCase& row : all_op_cases())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Graph lowered = lower(traced_case(row, dtype, one), one);
      price_all(lowered, one, priced);
      price_all(fuse(fuse_products(lowered)), one, priced);
    }
  const Mesh mesh({{"data", 2, 1}, {"mdl", 2, 1}});
  for (const auto& [type, first, last] : {std::array{"f32[\"a/data=4 b=4\"]", "a b", "a b"},
                                          {"f32[\"a=4 b=4\" + sum(data)]", "a/data b", "a/data b"},
                                          {"f32[\"a/data=4 b=4\"]", "a b/data", "a b/data"},
                                          {"f32[\"a/data=4 b=4\"]", "a/mdl b", "a/mdl b"},
                                          {"f32[\"a=4 b=4\"]", "a b + sum(data)", "a b"}}) {
    const std::string over = first, to = last;
    price_all(
        compiled(mesh, {type}, [&](const auto& x) { return reshard(reshard(x[0], over), to); }),
        mesh, priced);
  }
  const Mesh stages({{"stage", 3, 1}});
  price_all(relay("f32[\"row=4 column=4\"]", stages, 2), stages, priced);
  // Nodes that passes make: products with an epilogue, norms of sums, updates of several
  // parameters, and copies.
  Graph step;
  add_adam_step(step, {3, 5});
  price_all(fuse_updates(lower(step, one)), one, priced);
  price_all(compiled(mesh, {"f32[\"row=8 inner=8\"]", "f32[\"inner=8 column=8\"]"},
                     [](const auto& x) { return gelu_tanh(einsum(x[0], x[1], over("inner"))); }),
            mesh, priced);
  const std::string rows = "f32[\"row=8 embed=8\"]";
  price_all(compiled(mesh, {rows, rows},
                     [](const auto& x) { return rms_norm(x[0] + x[1], {}, "embed", 1e-5); }),
            mesh, priced);
  price_all(
      compiled(mesh, {"f32[\"row=8\"]"},
               [](const auto& x) { return trace_op(kCopyOp, {x[0]}, {}, SourceSite::current()); }),
      mesh, priced);
  for (const OpDef* op : all_ops()) {
    CAPTURE(op->name);
    const bool is_launched =
        op->op_class != OpClass::kLoop && op->op_class != OpClass::kReshard && !op->identity;
    if (is_launched) REQUIRE(priced.contains(op));
  }
}

}  // namespace
}  // namespace tessera
