// SPDX-License-Identifier: Apache-2.0
// What a device can do, by its datasheet and measurements. --mode=plan --hardware=… predicts speed
// from it (tasks/planner/prices/roofline.h). The devices are TOML files: those of hardware/, the
// user's own (docs/hardware.md), and those that --mode=calibrate writes. A file that is fitted to
// the trace of a run also has the measured time of each type of launch (docs/launch_costs.md).
// Nothing here needs the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// Numbers outside of these ranges are mistakes, such as wrong units.
namespace hardware_ranges {
inline constexpr FieldInfo kPeak{.unit = "FLOP/s", .min = 1e6, .max = 1e21};
inline constexpr FieldInfo kOperations{.unit = "operations per second", .min = 1e3, .max = 1e21};
inline constexpr FieldInfo kBandwidth{.unit = "bytes per second", .min = 1e6, .max = 1e18};
inline constexpr FieldInfo kBytes{.unit = "bytes", .min = 1e6, .max = 1e18};
inline constexpr FieldInfo kCopiedBytes{.unit = "bytes", .min = 1, .max = 1e18};
inline constexpr FieldInfo kSeconds{.unit = "seconds", .min = 1e-12, .max = 1};
inline constexpr FieldInfo kLaunchSeconds{.unit = "seconds", .min = 1e-12, .max = 1e6};
inline constexpr FieldInfo kReached{.unit = "of the peak", .min = 1e-3, .max = 1};
inline constexpr FieldInfo kPointShare{.unit = "of the peak", .min = 1e-6, .max = 1};
inline constexpr FieldInfo kStart{.min = 1e-3, .max = 1e6};
inline constexpr FieldInfo kRows{.unit = "rows or columns", .min = 1, .max = 1e9};
inline constexpr FieldInfo kMultiprocessors{.min = 1, .max = 1e6};
inline constexpr FieldInfo kClock{.unit = "cycles per second", .min = 1e6, .max = 1e11};
inline constexpr FieldInfo kSharedBytes{.unit = "bytes", .min = 1e4, .max = 1e9};
inline constexpr FieldInfo kThreads{.min = 1, .max = 1024};
inline constexpr FieldInfo kPrice{.min = 1e-6, .max = 1e9};
}  // namespace hardware_ranges

enum class HardwareKind { kGpu, kTpu, kCpu };
// Floating-point operations per second, a multiplication and its addition counted as two.
struct PeakFlops {
  double bf16 = 0.0, f32 = 0.0;       // Matrix products, with f32 sums.
  std::optional<double> fp8;          // Products of 8-bit floats; unset: emulated.
  std::optional<double> elementwise;  // f32 outside of products; unset: f32.
  FIELDS(About(bf16, hardware_ranges::kPeak), About(f32, hardware_ranges::kPeak),
         About(fp8, hardware_ranges::kPeak), About(elementwise, hardware_ranges::kPeak))

  // The peak of products. All dtypes but bf16 run at the rate of f32.
  double operator()(DType dtype) const { return dtype == DType::kBF16 ? bf16 : f32; }
};

// The rate of a copy whose source and result have so many bytes together: higher if they fit into a
// cache.
struct CopyPoint {
  int64_t bytes = 0;
  double bandwidth = 0.0;  // Bytes per second, read and written ones counted.
  FIELDS(About(bytes, hardware_ranges::kCopiedBytes), About(bandwidth, hardware_ranges::kBandwidth))
};

struct DeviceMemory {
  int64_t bytes = 0;
  double bandwidth = 0.0;  // Bytes per second.
  // By rising bytes; unset: Efficiency::copies for all sizes.
  std::optional<std::vector<CopyPoint>> copies;
  FIELDS(About(bytes, hardware_ranges::kBytes), About(bandwidth, hardware_ranges::kBandwidth),
         copies)
};

// How a message travels from a device to n - 1 others: in n - 1 hops or in log2 n.
enum class LinkTopology { kRing, kTree };
// The link from a device to the others.
struct DeviceLink {
  double bandwidth = 0.0;  // Bytes per second that each device sends while all send.
  double latency = 0.0;    // Seconds that a collective takes beside its bytes; with a topology:
                           // that each of its hops takes.
  std::optional<LinkTopology> topology;
  // How many times as fast an all-reduce of eight or more is where the switch adds (NVLS).
  std::optional<double> switch_sums;
  FIELDS(About(bandwidth, hardware_ranges::kBandwidth), About(latency, hardware_ranges::kSeconds),
         topology, About(switch_sums, {.min = 1, .max = 16}))
};

// Shares of the peaks that kernels reach.
struct Efficiency {
  double products = 0.0;  // Products of large matrices.
  double copies = 0.0;    // A copy, as a share of the memory's bandwidth.
  double links = 0.0;     // Large messages.
  FIELDS(About(products, hardware_ranges::kReached), About(copies, hardware_ranges::kReached),
         About(links, hardware_ranges::kReached))
};

// The multiprocessors of a GPU.
struct Multiprocessors {
  int64_t count = 0;
  double clock = 0.0;
  double matrix_share = 0.0;        // Share of the peak that products of warps (mma.sync) reach.
  int64_t shared_memory_bytes = 0;  // Per multiprocessor.
  FIELDS(About(count, hardware_ranges::kMultiprocessors), About(clock, hardware_ranges::kClock),
         About(matrix_share, hardware_ranges::kReached),
         About(shared_memory_bytes, hardware_ranges::kSharedBytes))
};

// How a GPU divides a product: without it the efficiency is the same for all shapes.
struct ProductTiles {
  double start = 0.0;  // Additions to a sum that take as long as the begin and end of a tile.
  FIELDS(About(start, hardware_ranges::kStart))
};

// Whose attention kernels a plan prices (tasks/planner/prices/attention_price.cc): Tessera's own by
// what they do, those of cuDNN as a run uses them, or the fastest that are published.
enum class AttentionKernels { kOwn, kCudnn, kPublished };
// The attention kernels of a run on a GPU.
struct AttentionHardware {
  AttentionKernels forward = AttentionKernels::kPublished, gradient = AttentionKernels::kPublished;
  FIELDS(forward, gradient)
};

// The measured share of the peak of a product m×k · k×n.
struct ProductPoint {
  int64_t m = 0, n = 0, k = 0;
  double share = 0.0;
  FIELDS(About(m, hardware_ranges::kRows), About(n, hardware_ranges::kRows),
         About(k, hardware_ranges::kRows), About(share, hardware_ranges::kPointShare))
};

// The efficiency of products by shape, for any kind of device; products of other shapes are
// interpolated (tasks/planner/prices/roofline.h). A dtype without points uses those of the
// other.
struct ProductCurve {
  std::optional<std::vector<ProductPoint>> f32, bf16;
  FIELDS(f32, bf16)

  const std::vector<ProductPoint>& points(DType dtype) const;
};

// Operations per second of the kernels of an op, where memory does not limit them; an addition is
// one operation, another function as many as its ElementFunction::cost, and a contraction counts
// its FLOPs.
struct KernelRate {
  std::optional<double> f32, bf16;  // By the dtype of the first operand; or that of the other.
  // Attention only: multiply-adds of a score that take as long as its exponential.
  std::optional<double> start;
  FIELDS(About(f32, hardware_ranges::kOperations), About(bf16, hardware_ranges::kOperations),
         About(start, hardware_ranges::kStart))

  double operator()(DType dtype) const;
};

// How the devices of a host share its processor; for kind = "cpu".
struct SharedProcessor {
  int64_t devices = 1;  // Devices that ran at the same time when the file was measured.
  int64_t threads = 1;  // Per device.
  FIELDS(About(devices, hardware_ranges::kThreads), About(threads, hardware_ranges::kThreads))
};

// The content of a hardware file.
struct HardwareFile {
  static constexpr std::string_view kName = "a hardware file";
  std::string title;  // "NVIDIA H200 SXM".
  HardwareKind kind = HardwareKind::kGpu;
  // Seconds from the end of a kernel to the start of the next.
  double launch_overhead = 0.0;
  std::optional<double> price_per_hour;  // Per device, in any currency.
  PeakFlops peak_flops;
  DeviceMemory memory;
  DeviceLink link;     // Within a host or slice,
  DeviceLink network;  // and between them: the device's share.
  // From the host's memory, for the batch of a step; unset: it takes no time.
  std::optional<DeviceLink> host;
  Efficiency efficiency;
  std::optional<Multiprocessors> multiprocessors;  // Set where tiles or attention are.
  std::optional<ProductTiles> tiles;
  std::optional<ProductCurve> products;        // In place of `tiles`.
  std::optional<AttentionHardware> attention;  // Unset: published rates.
  std::map<std::string, KernelRate> kernels;   // By the op's name.
  std::optional<SharedProcessor> processor;
  // Seconds of a launch of a type (core/runtime/executor/launch_trace.h), with the gap before the
  // next, in a traced run: medians. Pax calls this profile-guided latency estimation.
  std::map<std::string, double> launches;
  FIELDS(title, kind, About(launch_overhead, hardware_ranges::kSeconds),
         About(price_per_hour, hardware_ranges::kPrice), processor, peak_flops, memory, link,
         network, host, efficiency, multiprocessors, tiles, products, attention, kernels,
         About(launches, hardware_ranges::kLaunchSeconds))
};

struct Hardware : HardwareFile {
  std::string name;  // The argument of --hardware: "h200", "my/gpu.toml".
};

// Peak of products of 8-bit floats; nullopt if our kernels emulate them on this device.
inline std::optional<double> fp8_peak(const Hardware& hardware) {
  return hardware.kind == HardwareKind::kGpu ? hardware.peak_flops.fp8 : std::nullopt;
}

// Estimated bytes of GPU memory that the driver, its libraries, NCCL's buffers and CUDA graphs use.
inline int64_t bytes_beside_arena(const Hardware& hardware) {
  constexpr int64_t kMost = int64_t{3} << 29;
  if (hardware.kind != HardwareKind::kGpu) return 0;
  return std::min(kMost, hardware.memory.bytes / 50);
}
// Bytes that are left for the arena of a plan.
inline int64_t arena_room(const Hardware& hardware) {
  return hardware.memory.bytes - bytes_beside_arena(hardware);
}

// `where` names the text in messages. Error with the field, on one line, for a field that is
// missing, unknown, of the wrong type, or a number that cannot be.
Hardware parse_hardware(std::string_view text, const std::string& where);
Hardware read_hardware(const std::filesystem::path& file);

// TOML that parse_hardware() reads, with numbers of four digits, which are more than a measurement
// has. `comment`: lines at its head, each without its "# ".
std::string hardware_text(const HardwareFile& file, const std::string& comment);

// The names that the folder has files for, sorted.
std::vector<std::string> hardware_names(const std::filesystem::path& folder);

// A name of `folder`, or the path of a file if `given` has a '/' or ends with ".toml". Error with
// the nearest name and all names for an unknown one.
Hardware find_hardware(std::string_view given, const std::filesystem::path& folder);

// The file that --mode=calibrate --trace writes into the directory of a run.
inline constexpr const char* kFittedHardwareFile = "hardware.toml";

// The file of --launch_costs, or that of its directory, which process 0 reads: all processes must
// schedule alike. nullopt for an empty path. Error if there is no such file, or it has no launches.
std::optional<Hardware> shared_launch_costs(const std::filesystem::path& path,
                                            ProcessGroup& processes);

}  // namespace tessera
