// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/sharded_place.h"

#include <set>

#include "core/base/error.h"
#include "core/base/region.h"
#include "core/devices/iteration_space.h"

namespace tessera {
namespace {

// Returns a device's block in an array of this shape.
Subarray within(const ShardedPlace& place, const std::vector<int64_t>& shape, const Region& block) {
  return {Region::whole(shape), block, dtype_bytes(place.type.dtype)};
}

// Calls visit(part, block, its offset in the part's arena) for the blocks of each device.
template <typename Visit>
void each_block(const ShardedPlace& place, const DeviceParts& parts, const Visit& visit) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!place.offsets[i]) continue;
    for (const ShardBlock& block : shard_blocks(place.type, place.mesh, parts[i]->number()))
      visit(*parts[i], block.global, *place.offsets[i] + local_begin(place, block));
  }
}

void expect_whole(const ShardedPlace& place, size_t bytes) {
  if (static_cast<int64_t>(bytes) != place.type.bytes())
    fail("{} is {}, {} bytes; got {}", place.name, place.type.text_sized(), place.type.bytes(),
         bytes);
}

void write_block(const Subarray& from, std::span<const std::byte> array, DeviceExecutor& part,
                 int64_t offset) {
  const auto bytes = static_cast<size_t>(from.bytes());
  if (from.is_contiguous()) {
    part.copy_from_host(offset, array.subspan(static_cast<size_t>(from.begin()), bytes));
    return;
  }
  std::vector<std::byte> block(bytes);
  from.pack(array.data(), block.data());
  part.copy_from_host(offset, block);
}

}  // namespace

int64_t local_begin(const ShardedPlace& place, const ShardBlock& block) {
  const Subarray in_part(sizes_of(local_type(place.type, place.mesh).axes), block.local_origin,
                         block.global.shape, dtype_bytes(place.type.dtype));
  if (!in_part.is_contiguous())
    fail("{} is {}, whose layers are in pieces ({}); {} must be its first axis", place.name,
         place.type.text_sized(), place.mesh.layer_pieces().text(), kLayersAxis);
  return in_part.begin();
}

void write_whole(const ShardedPlace& place, const DeviceParts& parts,
                 std::span<const std::byte> bytes) {
  expect_whole(place, bytes.size());
  const std::vector<int64_t> shape = sizes_of(place.type.axes);
  each_block(place, parts, [&](DeviceExecutor& part, const Region& block, int64_t offset) {
    write_block(within(place, shape, block), bytes, part, offset);
  });
}

int64_t read_held(const ShardedPlace& place, const DeviceParts& parts, std::span<std::byte> bytes) {
  expect_whole(place, bytes.size());
  const std::vector<int64_t> shape = sizes_of(place.type.axes);
  std::set<std::vector<int64_t>> read;  // Origins of blocks.
  int64_t bytes_read = 0;
  each_block(place, parts, [&](DeviceExecutor& part, const Region& block, int64_t offset) {
    if (!read.insert(block.origin).second) return;
    const Subarray to = within(place, shape, block);
    const auto size = static_cast<size_t>(to.bytes());
    bytes_read += to.bytes();
    if (to.is_contiguous())
      return part.copy_to_host(bytes.subspan(static_cast<size_t>(to.begin()), size), offset);
    std::vector<std::byte> packed(size);
    part.copy_to_host(packed, offset);
    to.unpack(packed.data(), bytes.data());
  });
  return bytes_read;
}

void read_whole(const ShardedPlace& place, const DeviceParts& parts, std::span<std::byte> bytes) {
  if (const int64_t held = read_held(place, parts, bytes); held != place.type.bytes())
    fail("{} is {}, of which this process holds {} of {} bytes; reshard it to be replicated",
         place.name, place.type.text_sized(), held, place.type.bytes());
}

void write_rows(const ShardedPlace& place, const DeviceParts& parts,
                std::span<const std::byte> bytes) {
  if (place.type.rank() == 0) return write_whole(place, parts, bytes);
  const std::vector<RowRange> held =
      rows_of(place.type, place.mesh, parts[0]->number(), std::ssize(parts));
  std::vector<int64_t> shape = sizes_of(place.type.axes);
  shape[0] = 0;
  for (const RowRange& range : held) shape[0] += range.size();
  const int64_t expected = Region::whole(shape).elements() * dtype_bytes(place.type.dtype);
  if (std::ssize(bytes) != expected)
    fail("{} is {}, of which this process takes {} rows, {} bytes; got {}", place.name,
         place.type.text_sized(), shape[0], expected, bytes.size());
  each_block(place, parts, [&](DeviceExecutor& part, Region block, int64_t offset) {
    int64_t before = 0;  // Rows of the earlier ranges.
    for (const RowRange& range : held) {
      if (block.origin[0] < range.end) {
        block.origin[0] += before - range.begin;
        break;
      }
      before += range.size();
    }
    write_block(within(place, shape, block), bytes, part, offset);
  });
}

}  // namespace tessera
