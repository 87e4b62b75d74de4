// SPDX-License-Identifier: Apache-2.0
// The collectives of GPUs that NCCL connects.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "plugins/cuda/communicator/nccl_communicator.h"
#include "plugins/cuda/communicator/part_rows.h"
#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/setting_words.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

// Arrays in scratch begin at a multiple of this.
int64_t scratch_size(int64_t bytes) { return (bytes + 255) / 256 * 256; }

bool is_contiguous(const Subarray& part) { return rows_of(part).is_contiguous(); }

nccl::DataType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return nccl::ncclFloat32;
    case DType::kF64:
      return nccl::ncclFloat64;
    case DType::kBF16:
      return nccl::ncclBfloat16;
    case DType::kI32:
      return nccl::ncclInt32;
    case DType::kU32:
      return nccl::ncclUint32;
    default:
      fail("{} cannot be reduced over devices; cast it to i32", dtype_name(dtype));
  }
}

// A message to or from the member with this index.
nccl::Result send(const Nccl& library, DeviceAddress from, int64_t bytes, int64_t to,
                  nccl::Comm* comm, CUstream stream) {
  return library.ncclSend(pointer_as<void>(from), static_cast<size_t>(bytes), nccl::ncclUint8,
                          static_cast<int>(to), comm, stream);
}
nccl::Result receive(const Nccl& library, DeviceAddress to, int64_t bytes, int64_t from,
                     nccl::Comm* comm, CUstream stream) {
  return library.ncclRecv(pointer_as<void>(to), static_cast<size_t>(bytes), nccl::ncclUint8,
                          static_cast<int>(from), comm, stream);
}

// Notes that the GPU arrives and leaves, around what the library enqueues.
class NcclKernel : public CudaKernel {
 public:
  NcclKernel(NcclCommunicator& communicator, int64_t device, const Node& node,
             std::shared_ptr<const CollectiveInfo> info)
      : communicator_(communicator),
        device_(device),
        info_(std::move(info)),
        number_(communicator.add_collective(device, info_)),
        rank_(communicator.connect(device, node, info_)),
        rectangles_(communicator.context(device)) {
    note_implementation(kNcclName);
  }

  int64_t scratch_bytes() const final { return nccl_scratch_bytes(*info_); }
  // NCCL's user guide ("Using NCCL with CUDA Graphs") warns of deadlocks where one process has
  // several GPUs, and recommends a process for each.
  std::string why_not_captured() const final {
    const bool may_deadlock = communicator_.local_devices() > 1 && !is_set(kGraphVariable);
    return may_deadlock ? fmt::format(
                              "NCCL may deadlock in graphs of several GPUs of one process; "
                              "start a process for each GPU (mpirun -n {} runexp … without "
                              "--devices), or set {}=on",
                              communicator_.local_devices(), kGraphVariable)
                        : "";
  }
  void enqueue(CUstream stream, const LaunchArgs& args) final {
    communicator_.arrive(device_, number_, stream);
    communicate(stream, args);
    communicator_.leave(device_, bytes_sent(), stream);
  }

 protected:
  virtual void communicate(CUstream stream, const LaunchArgs& args) = 0;
  virtual int64_t bytes_sent() const = 0;  // To other devices, however the library does it.

  const CollectiveInfo& info() const { return *info_; }
  bool is_own(int64_t index) const { return index == info_->index; }
  // Bytes of one member's part.
  int64_t part_bytes() const { return info_->part(info_->index).bytes(); }

  // call(library, comm) enqueues; all of it is in the stream on return.
  template <typename Call>
  void run(const Call& call) const {
    rank_->begin([&](nccl::Comm* comm) { return call(rank_->library(), comm); });
    communicator_.wait_until_ready(device_, info_, *rank_);
  }
  static void* pointer(DeviceAddress address) { return pointer_as<void>(address); }

  // Parts of an array that lie one after another, each packed, from `packed` on.
  enum class Copy { kPack, kUnpack };
  template <typename PartOf>
  void copy_parts(CUstream stream, Copy copy, DeviceAddress array, DeviceAddress packed,
                  const PartOf& part_of) const {
    std::vector<ByteRectangle> rectangles;
    for (int64_t i = 0; i < info_->size(); ++i) {
      const PartRows rows = rows_of(part_of(i));
      if (rows.count == 0) continue;
      ByteRectangle each{.from = array + rows.begin,
                         .to = packed,
                         .rows = rows.count,
                         .row_bytes = rows.bytes,
                         .from_pitch = rows.pitch,
                         .to_pitch = rows.bytes};
      if (copy == Copy::kUnpack) {
        std::swap(each.from, each.to);
        std::swap(each.from_pitch, each.to_pitch);
      }
      rectangles.push_back(each);
      packed = packed + rows.count * rows.bytes;
    }
    rectangles_.enqueue(stream, rectangles);
  }

 private:
  NcclCommunicator& communicator_;
  int64_t device_;
  std::shared_ptr<const CollectiveInfo> info_;
  uint32_t number_;
  std::shared_ptr<NcclRank> rank_;
  RectangleCopy rectangles_;
};

class NcclGather final : public NcclKernel {
 public:
  using NcclKernel::NcclKernel;

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    const bool direct = scratch_bytes() == 0;
    const DeviceAddress out = direct ? args.outputs[0] : args.scratch;
    run([&](const Nccl& library, nccl::Comm* comm) {
      return library.ncclAllGather(pointer(args.inputs[0]), pointer(out),
                                   static_cast<size_t>(info().bytes_in()), nccl::ncclUint8, comm,
                                   stream);
    });
    if (!direct)
      copy_parts(stream, Copy::kUnpack, args.outputs[0], args.scratch,
                 [this](int64_t i) { return info().part(i); });
  }
  int64_t bytes_sent() const override { return info().bytes_in() * (info().size() - 1); }
};

// reduce_scatter and all_reduce.
class NcclReduction final : public NcclKernel {
 public:
  NcclReduction(NcclCommunicator& communicator, int64_t device, const Node& node,
                std::shared_ptr<const CollectiveInfo> shared)
      : NcclKernel(communicator, device, node, std::move(shared)),
        type_(nccl_type(info().dtype)),
        op_(info().reduction == Reduction::kSum ? nccl::ncclSum : nccl::ncclMax) {}

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    DeviceAddress in = args.inputs[0];
    if (scratch_bytes() > 0) {
      copy_parts(stream, Copy::kPack, in, args.scratch,
                 [this](int64_t i) { return info().part(i); });
      in = args.scratch;
    }
    run([&](const Nccl& library, nccl::Comm* comm) {
      const auto each =
          info().op == &kAllReduceOp ? library.ncclAllReduce : library.ncclReduceScatter;
      return each(pointer(in), pointer(args.outputs[0]), static_cast<size_t>(info().elements_out),
                  type_, op_, comm, stream);
    });
  }
  // Every other device gets its part of the operand and, of an all_reduce, the sum of ours.
  int64_t bytes_sent() const override {
    const int64_t others = info().bytes_in() - part_bytes();
    return info().op == &kAllReduceOp ? others + part_bytes() * (info().size() - 1) : others;
  }

  nccl::DataType type_;
  nccl::RedOp op_;
};

// all_to_all and permute.
class NcclExchange final : public NcclKernel {
 public:
  using NcclKernel::NcclKernel;

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    if (info().op == &kPermuteOp) return permute(stream, args);
    const bool packs = !is_contiguous(info().part_to(0));
    const bool unpacks = !is_contiguous(info().part_from(0));
    const DeviceAddress in = packs ? args.scratch : args.inputs[0];
    const DeviceAddress out =
        unpacks ? args.scratch + (packs ? scratch_size(info().bytes_in()) : 0) : args.outputs[0];
    if (packs)
      copy_parts(stream, Copy::kPack, args.inputs[0], in,
                 [this](int64_t i) { return info().part_to(i); });
    const int64_t bytes = info().part_to(0).bytes();
    run([&](const Nccl& library, nccl::Comm* comm) {
      return grouped(library, [&](const auto& add) {
        for (int64_t i = 0; i < info().size(); ++i) {
          add(send(library, in + i * bytes, bytes, i, comm, stream));
          add(receive(library, out + i * bytes, bytes, i, comm, stream));
        }
      });
    });
    if (unpacks)
      copy_parts(stream, Copy::kUnpack, args.outputs[0], out,
                 [this](int64_t i) { return info().part_from(i); });
  }

  void permute(CUstream stream, const LaunchArgs& args) const {
    const auto index_of = [&](int64_t device) {
      return std::find(info().group.begin(), info().group.end(), device) - info().group.begin();
    };
    const int64_t bytes = info().bytes_in();
    run([&](const Nccl& library, nccl::Comm* comm) {
      return grouped(library, [&](const auto& add) {
        add(send(library, args.inputs[0], bytes, index_of(info().to), comm, stream));
        add(receive(library, args.outputs[0], bytes, index_of(info().from), comm, stream));
      });
    });
  }

  // The sends and receives that calls(add) adds run together. The first error of any.
  template <typename Calls>
  static nccl::Result grouped(const Nccl& library, const Calls& calls) {
    nccl::Result first = library.ncclGroupStart();
    if (first != nccl::ncclSuccess) return first;
    const auto add = [&](nccl::Result result) {
      if (first == nccl::ncclSuccess || first == nccl::ncclInProgress) first = result;
    };
    calls(add);
    add(library.ncclGroupEnd());
    return first;
  }

  int64_t bytes_sent() const override {
    if (info().op != &kPermuteOp) return info().bytes_in() - info().part_to(info().index).bytes();
    return info().to == info().group[static_cast<size_t>(info().index)] ? 0 : info().bytes_in();
  }
};

// send and receive.
class NcclTransfer final : public NcclKernel {
 public:
  using NcclKernel::NcclKernel;

 private:
  void communicate(CUstream stream, const LaunchArgs& args) override {
    const int64_t other = 1 - info().index;
    run([&](const Nccl& library, nccl::Comm* comm) {
      return info().op == &kSendOp
                 ? send(library, args.inputs[0], info().bytes_in(), other, comm, stream)
                 : receive(library, args.outputs[0], info().bytes_out(), other, comm, stream);
    });
  }
  int64_t bytes_sent() const override { return info().bytes_in(); }
};

}  // namespace

int64_t nccl_scratch_bytes(const CollectiveInfo& info) {
  if (info.op == &kAllGatherOp) return is_contiguous(info.part(0)) ? 0 : info.bytes_out();
  if (info.op == &kReduceScatterOp) return is_contiguous(info.part(0)) ? 0 : info.bytes_in();
  if (info.op != &kAllToAllOp) return 0;
  return (is_contiguous(info.part_to(0)) ? 0 : scratch_size(info.bytes_in())) +
         (is_contiguous(info.part_from(0)) ? 0 : scratch_size(info.bytes_out()));
}

std::unique_ptr<Kernel> make_nccl_kernel(NcclCommunicator& communicator, int64_t device,
                                         const Graph& graph, const Node& node) {
  auto info = std::make_shared<const CollectiveInfo>(read_collective(graph, node));
  CHECK(info->group[static_cast<size_t>(info->index)] == device, "device {} at index {} of a group",
        device, info->index);
  if (info->op == &kAllGatherOp)
    return std::make_unique<NcclGather>(communicator, device, node, std::move(info));
  if (info->op == &kAllToAllOp || info->op == &kPermuteOp)
    return std::make_unique<NcclExchange>(communicator, device, node, std::move(info));
  if (is_transfer(node))
    return std::make_unique<NcclTransfer>(communicator, device, node, std::move(info));
  return std::make_unique<NcclReduction>(communicator, device, node, std::move(info));
}

}  // namespace tessera::cuda
