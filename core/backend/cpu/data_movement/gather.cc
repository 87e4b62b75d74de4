// SPDX-License-Identifier: Apache-2.0
// The kernels of gather, scatter_add and pick. An id outside the axis selects zeros; an id outside
// the shard of a split axis belongs to another device.
#include "core/ops/gather.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/backend/cpu/reduction/reduce_rows.h"
#include "core/backend/cpu/registry.h"
#include "core/backend/cpu/shard_index_map.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

const int32_t* ids_of(const HostArgs& args) {
  return reinterpret_cast<const int32_t*>(args.inputs[1]);
}

class GatherKernel final : public HostKernel {
 public:
  GatherKernel(int64_t ids, Range rows, int64_t row_bytes, ThreadPool& pool)
      : ids_(ids), rows_(rows), row_bytes_(row_bytes), pool_(pool) {}

  void run(const HostArgs& args) override {
    const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_bytes_));
    const auto bytes = static_cast<size_t>(row_bytes_);
    pool_.parallel(ids_, grain, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t id = ids_of(args)[i];
        std::byte* const to = args.outputs[0] + i * row_bytes_;
        if (id >= rows_.begin && id < rows_.end) {
          std::memcpy(to, args.inputs[0] + (id - rows_.begin) * row_bytes_, bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    });
  }

 private:
  int64_t ids_;
  Range rows_;
  int64_t row_bytes_;
  ThreadPool& pool_;
};

// Sorts the updates by row, so that one thread sums each row of the result in the order of the
// updates: the bits do not depend on the number of threads.
class ScatterAddKernel final : public HostKernel {
 public:
  ScatterAddKernel(int64_t updates, Range rows, int64_t columns, DType dtype, ThreadPool& pool)
      : updates_(updates),
        first_(rows.begin),
        rows_(rows.size()),
        columns_(columns),
        dtype_(dtype),
        pool_(pool) {}

  // The begin of each row in the order, the order, and a row of sums per thread.
  int64_t scratch_bytes() const override {
    return (rows_ + 1 + updates_) * 4 + (pool_.size() * columns_) * 4 + 64;
  }

  void run(const HostArgs& args) override {
    int32_t* const begins = reinterpret_cast<int32_t*>(args.scratch);
    int32_t* const order = begins + rows_ + 1;
    float* const sums = reinterpret_cast<float*>(order + updates_);
    sort(ids_of(args), begins, order);
    const int64_t bytes = dtype_bytes(dtype_);
    // The cost of a row is its updates plus the store.
    const int64_t work = rows_ + begins[rows_];
    const auto first_row = [&](int64_t share) {
      int64_t low = 0, high = rows_;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (middle + begins[middle] < share) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    };
    const int threads = work * columns_ < 16384 ? 1 : pool_.size();
    const auto rows_of = [&](int thread) {
      const Range share = part_of(work, thread, threads);
      const int64_t begin = thread == 0 ? 0 : first_row(share.begin);
      return Range{begin, thread + 1 == threads ? rows_ : first_row(share.end)};
    };
    const auto add_rows = [&](int thread) {
      if (thread >= threads) return;
      float* const sum = sums + thread * columns_;
      const Range part = rows_of(thread);
      for (int64_t row = part.begin; row < part.end; ++row) {
        std::byte* const to = args.outputs[0] + row * columns_ * bytes;
        if (begins[row] == begins[row + 1]) {
          std::memset(to, 0, static_cast<size_t>(columns_ * bytes));
          continue;
        }
        std::fill_n(sum, columns_, 0.0f);
        for (int32_t i = begins[row]; i < begins[row + 1]; ++i) {
          add_row(dtype_, args.inputs[0] + order[i] * columns_ * bytes, columns_, sum);
        }
        store_sums(dtype_, sum, columns_, to);
      }
    };
    if (threads == 1) {
      add_rows(0);
    } else {
      pool_.run(add_rows);
    }
  }

 private:
  // A stable counting sort of the ids within the axis.
  void sort(const int32_t* ids, int32_t* begins, int32_t* order) const {
    std::fill_n(begins, rows_ + 1, 0);
    for (int64_t i = 0; i < updates_; ++i) {
      const int64_t row = ids[i] - first_;
      if (row >= 0 && row < rows_) ++begins[row + 1];
    }
    for (int64_t row = 0; row < rows_; ++row) begins[row + 1] += begins[row];
    for (int64_t i = 0; i < updates_; ++i) {
      const int64_t row = ids[i] - first_;
      if (row >= 0 && row < rows_) order[begins[row]++] = static_cast<int32_t>(i);
    }
    // Each begin has moved to the begin of the next row: shift them back.
    for (int64_t row = rows_; row > 0; --row) begins[row] = begins[row - 1];
    begins[0] = 0;
  }

  int64_t updates_, first_, rows_, columns_;
  DType dtype_;
  ThreadPool& pool_;
};

class PickKernel final : public HostKernel {
 public:
  PickKernel(int64_t outer, Range ids, int64_t inner, int64_t bytes, ThreadPool& pool)
      : outer_(outer), ids_(ids), inner_(inner), bytes_(bytes), pool_(pool) {}

  void run(const HostArgs& args) override {
    const auto bytes = static_cast<size_t>(bytes_);
    pool_.parallel(outer_ * inner_, 1024, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t id = ids_of(args)[i];
        std::byte* const to = args.outputs[0] + i * bytes_;
        if (id < ids_.begin || id >= ids_.end) {
          std::memset(to, 0, bytes);
          continue;
        }
        const int64_t from = (i / inner_ * ids_.size() + id - ids_.begin) * inner_ + i % inner_;
        std::memcpy(to, args.inputs[0] + from * bytes_, bytes);
      }
    });
  }

 private:
  int64_t outer_;
  Range ids_;
  int64_t inner_, bytes_;
  ThreadPool& pool_;
};

// The global indices of a shard along an axis of the anchor.
Range shard_range(const Node& node, const Type& anchor, int64_t axis) {
  const int64_t origin = origin_along(node.attributes, axis);
  return {origin, origin + anchor.axes[static_cast<size_t>(axis)].size};
}

std::unique_ptr<Kernel> make_gather(const Graph& graph, const Node& node, ThreadPool& pool) {
  const Type &table = graph.type(node.inputs[0]), &ids = graph.type(node.inputs[1]);
  const int64_t rows = table.axes[0].size;
  return std::make_unique<GatherKernel>(ids.elements(), shard_range(node, table, 0),
                                        table.bytes() / rows, pool);
}

std::unique_ptr<Kernel> make_scatter_add(const Graph& graph, const Node& node, ThreadPool& pool) {
  const Type &ids = graph.type(node.inputs[1]), &result = graph.type(node.outputs[0]);
  const int64_t rows = result.axes[0].size;
  return std::make_unique<ScatterAddKernel>(ids.elements(), shard_range(node, result, 0),
                                            result.elements() / rows, result.dtype, pool);
}

std::unique_ptr<Kernel> make_pick(const Graph& graph, const Node& node, ThreadPool& pool) {
  const Type& x = graph.type(node.inputs[0]);
  const int64_t axis = x.find(node.attributes.get<std::string>("axis"));
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i < axis) outer *= x.axes[static_cast<size_t>(i)].size;
    if (i > axis) inner *= x.axes[static_cast<size_t>(i)].size;
  }
  return std::make_unique<PickKernel>(outer, shard_range(node, x, axis), inner,
                                      dtype_bytes(x.dtype), pool);
}

const KernelRegistrar kRegisterGather{kGatherOp, make_gather};
const KernelRegistrar kRegisterScatterAdd{kScatterAddOp, make_scatter_add};
const KernelRegistrar kRegisterPick{kPickOp, make_pick};

}  // namespace
}  // namespace tessera
