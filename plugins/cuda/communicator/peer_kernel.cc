// SPDX-License-Identifier: Apache-2.0
// The collectives of GPUs that read each other's memory.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "plugins/cuda/communicator/part_rows.h"
#include "plugins/cuda/communicator/peer_communicator.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/kernels/movement.h"
#include "plugins/cuda/kernels/peer_reduce.h"

namespace tessera::cuda {
namespace {

// Begins and ends each collective: no GPU reads an operand before it is ready, and none overwrites
// what a peer still reads.
class PeerKernel : public CudaKernel {
 public:
  PeerKernel(PeerCommunicator& communicator, int64_t device,
             std::shared_ptr<const CollectiveInfo> info)
      : communicator_(communicator),
        context_(communicator.context(device)),
        info_(std::move(info)),
        topology_(info_->group, device, communicator.local_devices()),
        group_(communicator.group(topology_)),
        rectangles_(context_),
        runs_(context_) {}

  std::string why_not_captured() const final {
    return "GPUs that read each other's memory synchronize on the host in each collective";
  }
  void enqueue(CUstream stream, const LaunchArgs& args) final {
    communicator_.host().begin_collective(device(), info_);
    deadline_ = WaitDeadline(communicator_.timeout());
    PeerGroup::Slot& slot = slot_of(topology_.self());
    slot.input = args.inputs.empty() ? DeviceAddress() : args.inputs[0];
    slot.output = args.outputs.empty() ? DeviceAddress() : args.outputs[0];
    slot.info = info_.get();
    meet(stream, PeerGroup::kReady);
    for (const Member& member : topology_.local())
      require_same_collective(device(), *info_, member.device, *slot_of(member).info);
    communicate(stream, args);
    meet(stream, PeerGroup::kDone);
    communicator_.host().end_collective(device());
  }

 protected:
  virtual void communicate(CUstream stream, const LaunchArgs& args) = 0;

  Context& context() const { return context_; }
  const CollectiveInfo& info() const { return *info_; }
  const GroupTopology& topology() const { return topology_; }
  int64_t device() const { return topology_.self().device; }
  DeviceAddress input_of(const Member& member) const { return slot_of(member).input; }
  DeviceAddress output_of(const Member& member) const { return slot_of(member).output; }
  const RectangleCopy& rectangles() const { return rectangles_; }

  // Later work of the stream follows the work of all peers up to this point.
  void meet(CUstream stream, PeerGroup::Point point) {
    const Driver& driver = context_.driver();
    const auto event = [&](const Member& member) {
      return native(*slot_of(member).events[static_cast<size_t>(point)]);
    };
    context_.check(driver.cuEventRecord(event(topology_.self()), stream), "recording an event");
    communicator_.host().barrier(*group_->rendezvous, topology_, deadline_);
    for (const Member& member : topology_.local())
      if (member.device != device())
        context_.check(driver.cuStreamWaitEvent(stream, event(member), 0),
                       "waiting for another GPU");
  }

  // Counts bytes that this device reads from a member as sent by that member.
  void count_read(const Member& member, int64_t bytes) const {
    if (member.device != device()) communicator_.host().count_sent(member.device, bytes);
  }

  // Rows that have the same elements in the same order, perhaps cut at different places.
  struct PartCopy {
    const Member* member = nullptr;  // Whose memory is read.
    PartRows from, to;
  };

  // source(member) is the array that is read.
  template <typename Source>
  void copy_parts(CUstream stream, const std::vector<PartCopy>& parts, const Source& source,
                  DeviceAddress out) const {
    std::vector<ByteRectangle> rectangles;
    for (const PartCopy& part : parts) {
      const DeviceAddress from = source(*part.member) + part.from.begin;
      const DeviceAddress to = out + part.to.begin;
      count_read(*part.member, part.from.count * part.from.bytes);
      if (!add_rectangle(part, from, to, rectangles)) copy_runs(stream, part, from, to);
    }
    this->rectangles().enqueue(stream, rectangles);
  }

 private:
  const PeerGroup::Slot& slot_of(const Member& member) const {
    return group_->slots[static_cast<size_t>(member.position)];
  }
  PeerGroup::Slot& slot_of(const Member& member) {
    return group_->slots[static_cast<size_t>(member.position)];
  }

  // False if it is not one rectangle.
  static bool add_rectangle(const PartCopy& part, DeviceAddress from, DeviceAddress to,
                            std::vector<ByteRectangle>& rectangles) {
    PartRows a = part.from, b = part.to;
    if (a.count == 0) return true;
    const int64_t bytes = std::min(a.bytes, b.bytes);
    // One row is the same as its pieces at the distance of a piece.
    for (PartRows* rows : {&a, &b})
      if (rows->count == 1 && rows->bytes > bytes)
        *rows = {.begin = 0, .count = rows->bytes / bytes, .bytes = bytes, .pitch = bytes};
    if (a.bytes != b.bytes) return false;
    rectangles.push_back({.from = from,
                          .to = to,
                          .rows = a.count,
                          .row_bytes = bytes,
                          .from_pitch = a.pitch,
                          .to_pitch = b.pitch});
    return true;
  }

  void copy_runs(CUstream stream, const PartCopy& part, DeviceAddress from,
                 DeviceAddress to) const {
    const int64_t bytes = std::min(part.from.bytes, part.to.bytes);
    const int64_t outer = std::min(part.from.count, part.to.count);
    const int64_t inner = std::max(part.from.count, part.to.count) / outer;
    const auto strides = [&](const PartRows& rows) {
      return rows.count == outer ? Strides{rows.pitch, bytes, 1}
                                 : Strides{inner * rows.pitch, rows.pitch, 1};
    };
    runs_.enqueue(
        stream, *info_->op,
        {.sizes = {outer, inner, bytes}, .operands = {strides(part.from), strides(part.to)}}, 1,
        from, to);
  }

  PeerCommunicator& communicator_;
  Context& context_;
  std::shared_ptr<const CollectiveInfo> info_;
  GroupTopology topology_;
  std::shared_ptr<PeerGroup> group_;
  RectangleCopy rectangles_;
  RunCopy runs_;
  WaitDeadline deadline_;  // Deadline of the current collective.
};

// all_gather and all_to_all: copies a part of each member's operand.
class PeerExchange final : public PeerKernel {
 public:
  PeerExchange(PeerCommunicator& communicator, int64_t device,
               std::shared_ptr<const CollectiveInfo> shared)
      : PeerKernel(communicator, device, std::move(shared)) {
    const bool gathers = info().op == &kAllGatherOp;
    const int64_t own = topology().self().index;
    for (const Member& member : topology().local()) {
      const Subarray from = gathers ? info().shard() : info().part_to(own);
      const Subarray to = gathers ? info().part(member.index) : info().part_from(member.index);
      parts_.push_back({&member, rows_of(from), rows_of(to)});
    }
  }

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    copy_parts(
        stream, parts_, [this](const Member& member) { return input_of(member); }, args.outputs[0]);
  }

  std::vector<PartCopy> parts_;
};

// permute, send and receive: copies another member's whole operand.
class PeerCopy final : public PeerKernel {
 public:
  using PeerKernel::PeerKernel;

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    if (args.outputs.empty()) return;
    for (const Member& member : topology().local()) {
      if (member.device != info().from) continue;
      rectangles().copy(stream, input_of(member), args.outputs[0], info().bytes_out());
      count_read(member, info().bytes_out());
    }
  }
};

// reduce_scatter and all_reduce. Each GPU reduces its own part; for an all_reduce, the parts are
// then gathered.
class PeerReduction final : public PeerKernel {
 public:
  PeerReduction(PeerCommunicator& communicator, int64_t device,
                std::shared_ptr<const CollectiveInfo> shared)
      : PeerKernel(communicator, device, std::move(shared)),
        own_(rows_of(info().part(topology().self().index))) {
    if (info().dtype == DType::kBool)
      fail("{} cannot be reduced over devices; cast it to i32", dtype_name(info().dtype));
    function_ = context().function(
        "peer_reduce",
        fmt::format("peer_{}_{}", info().reduction == Reduction::kSum ? "sum" : "max",
                    dtype_name(info().dtype)));
    for (const Member& member : topology().local()) {
      if (member.device == device) continue;
      const PartRows rows = rows_of(info().part(member.index));
      others_.push_back({&member, rows, rows});
    }
  }

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    const bool scatters = info().op == &kReduceScatterOp;
    reduce_own(stream, args.outputs[0] + (scatters ? 0 : own_.begin));
    if (scatters) return;
    meet(stream, PeerGroup::kReduced);  // Now operands may be overwritten.
    copy_parts(
        stream, others_, [this](const Member& member) { return output_of(member); },
        args.outputs[0]);
  }

  void reduce_own(CUstream stream, DeviceAddress to) const {
    PeerReduce p = {};
    int64_t access = widest_access({length_of(to), own_.bytes, own_.pitch});
    for (const Member& member : topology().local()) {
      const DeviceAddress from = input_of(member) + own_.begin;
      p.from[p.peers++] = pointer_as<const void>(from);
      access = widest_access({access, length_of(from)});
      count_read(member, own_.count * own_.bytes);
    }
    p.wide = access == 16;
    const int64_t width = p.wide ? access : dtype_bytes(info().dtype);
    const int64_t columns = own_.bytes / width;
    p.to = pointer_as<void>(to);
    p.accesses = own_.count * columns;
    p.columns = make_divider(static_cast<uint64_t>(std::max<int64_t>(1, columns)));
    p.pitch = own_.pitch / width;
    launch(context(), stream, function_, elementwise_shape(context(), p.accesses), p);
  }

  PartRows own_;
  Function function_;
  std::vector<PartCopy> others_;
};

}  // namespace

std::unique_ptr<Kernel> make_peer_kernel(PeerCommunicator& communicator, int64_t device,
                                         const Graph& graph, const Node& node) {
  auto info = std::make_shared<const CollectiveInfo>(read_collective(graph, node));
  CHECK(info->group[static_cast<size_t>(info->index)] == device, "device {} at index {} of a group",
        device, info->index);
  if (info->op == &kAllGatherOp || info->op == &kAllToAllOp)
    return std::make_unique<PeerExchange>(communicator, device, std::move(info));
  if (info->op == &kPermuteOp || is_transfer(node))
    return std::make_unique<PeerCopy>(communicator, device, std::move(info));
  return std::make_unique<PeerReduction>(communicator, device, std::move(info));
}

}  // namespace tessera::cuda
