// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint_table.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/crc32c.h"

namespace tessera {
namespace {

static_assert(kCheckpointVersion == 3);
constexpr std::string_view kShardHeading = "tessera checkpoint shard 3\n";
constexpr std::string_view kIndexHeading = "tessera checkpoint ";
constexpr std::string_view kEnd = "end ";
constexpr size_t kEndBytes = kEnd.size() + 8 + 1;  // "end 0123abcd\n"
constexpr int64_t kMostTableBytes = int64_t{1} << 30;
constexpr int64_t kMostHosts = 1 << 20;
constexpr size_t kMostAxes = 32;  // HDF5's limit.

uint32_t checksum(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::string ended(const std::string& text) {
  return fmt::format("{}{}{:08x}\n", text, kEnd, checksum(text));
}

// Reads a table from its beginning to its end.
class TableText {
 public:
  TableText(std::string_view text, const std::string& where) : rest_(text), where_(where) {
    const size_t size = text.size() < kEndBytes ? 0 : text.size() - kEndBytes;
    rest_.remove_prefix(size);
    const uint32_t expected = hex(kEnd);
    literal("\n");
    if (checksum(text.substr(0, size)) != expected)
      fail("{}: damaged: its checksum does not match", where_);
    rest_ = text.substr(0, size);
  }

  bool at_end() const { return rest_.empty(); }
  void literal(std::string_view expected) {
    if (!rest_.starts_with(expected)) refuse(expected);
    rest_.remove_prefix(expected.size());
  }
  // Reads a value and the text before it.
  template <typename T = int64_t>
  T integer(std::string_view before = "") {
    literal(before);
    T value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) refuse("a whole number");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  uint32_t hex(std::string_view before) {  // Reads exactly eight lowercase digits.
    literal(before);
    const std::string digits = take(8);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + 8, value, 16);
    if (error != std::errc() || fmt::format("{:08x}", value) != digits) refuse("a checksum");
    return value;
  }
  std::vector<int64_t> list(std::string_view before = "") {  // Reads "[2 3]".
    std::vector<int64_t> values;
    literal(before);
    literal("[");
    while (!rest_.starts_with("]")) {
      values.push_back(integer(values.empty() ? "" : " "));
      if (values.back() < 0 || values.size() > kMostAxes) refuse("sizes of an array");
    }
    literal("]");
    return values;
  }
  std::string take(int64_t bytes) {
    if (bytes < 0 || bytes > std::ssize(rest_)) refuse("more bytes");
    std::string text(rest_.substr(0, static_cast<size_t>(bytes)));
    rest_.remove_prefix(text.size());
    return text;
  }
  std::string up_to(char end) {
    std::string text = take(static_cast<int64_t>(std::min(rest_.find(end), rest_.size())));
    literal(std::string_view(&end, 1));
    return text;
  }
  bool next_is(std::string_view text) const { return rest_.starts_with(text); }
  [[noreturn]] void refuse(std::string_view expected) const {
    const auto line = [](std::string_view text) {
      text.remove_prefix(text.starts_with('\n') ? 1 : 0);
      return text.substr(0, std::min(text.find('\n'), size_t{40}));
    };
    fail("{}: damaged, or not the table of a checkpoint: expected '{}', got '{}'", where_,
         line(expected), line(rest_));
  }

 private:
  std::string_view rest_;
  const std::string& where_;
};

// Returns whether the array's number of bytes fits in 64 bits.
bool product_fits(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return false;
  return true;
}

// Returns whether tiles of this shape are runs of the block's row-major elements.
bool are_runs(const std::vector<int64_t>& tile, const std::vector<int64_t>& shape) {
  size_t axis = 0;
  while (axis < tile.size() && tile[axis] == 1) ++axis;
  for (size_t i = axis + 1; i < tile.size(); ++i)
    if (tile[i] != shape[i]) return false;
  return true;
}

bool is_sound(const CheckpointPiece& piece, int64_t file_bytes) {
  if (!lies_in(piece.block, piece.shape) || piece.tile.size() != piece.shape.size() ||
      !product_fits(piece.shape, dtype_bytes(piece.dtype)))
    return false;
  for (size_t i = 0; i < piece.tile.size(); ++i)
    if (piece.tile[i] < 1 || piece.tile[i] > std::max<int64_t>(piece.block.shape[i], 1))
      return false;
  return are_runs(piece.tile, piece.block.shape) && piece.file_offset >= 0 &&
         piece.bytes() <= file_bytes && piece.file_offset <= file_bytes - piece.bytes() &&
         Tiles(piece.block.shape, piece.tile).count() == std::ssize(piece.checksums);
}

// Computes the runs of the file outside pieces; nullopt if two pieces overlap.
using Runs = std::vector<std::pair<int64_t, int64_t>>;
std::optional<Runs> gaps(const ShardTable& table) {
  Runs runs, gaps;
  for (const CheckpointPiece& piece : table.pieces)
    if (piece.bytes() > 0) runs.emplace_back(piece.file_offset, piece.file_offset + piece.bytes());
  runs.emplace_back(table.bytes, table.bytes);
  std::ranges::sort(runs);
  int64_t at = 0;
  for (const auto& [begin, end] : runs) {
    if (begin < at) return std::nullopt;
    if (begin > at) gaps.emplace_back(at, begin);
    at = end;
  }
  return gaps;
}

DType dtype_named(const std::string& name, const TableText& text) {
  for (const DType dtype : kCheckpointDTypes)
    if (dtype_name(dtype) == name) return dtype;
  text.refuse("an element type");
}

// Parses "f32 [10 64] at [0 0] of [6 64] in [6 64] from 4096 sums 0123abcd,… params/w".
CheckpointPiece parse_piece(TableText& text) {
  CheckpointPiece piece;
  piece.dtype = dtype_named(text.up_to(' '), text);
  piece.shape = text.list();
  piece.block.origin = text.list(" at ");
  piece.block.shape = text.list(" of ");
  piece.tile = text.list(" in ");
  piece.file_offset = text.integer(" from ");
  text.literal(" sums ");
  while (!text.next_is(" "))
    piece.checksums.push_back(text.hex(piece.checksums.empty() ? "" : ","));
  text.literal(" ");
  piece.array = text.up_to('\n');
  return piece;
}

uint32_t range_checksum(const ByteFile& file, int64_t begin, int64_t end, uint32_t sum) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<int64_t>(end - begin, 1 << 20)));
  while (begin < end) {
    const int64_t bytes = std::min<int64_t>(end - begin, std::ssize(buffer));
    const std::span<std::byte> part = std::span(buffer).first(static_cast<size_t>(bytes));
    file.read_at(begin, part);
    sum = crc32c(part, sum);
    begin += bytes;
  }
  return sum;
}

void put_text(std::string* out, std::string_view name, std::string_view value) {
  *out += fmt::format("text {} {} {}\n{}\n", name.size(), value.size(), name, value);
}

constexpr std::string_view kInputExtra = "input_extra/";

}  // namespace

UnknownFormat::UnknownFormat(const std::string& where, int64_t version)
    : Error(fmt::format("{}: a checkpoint of format {}; this build reads format {}", where, version,
                        kCheckpointVersion)) {}

bool lies_in(const Region& block, const std::vector<int64_t>& shape) {
  if (block.origin.size() != shape.size() || block.shape.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (block.origin[i] < 0 || block.shape[i] < 0 || block.shape[i] > shape[i] ||
        block.origin[i] > shape[i] - block.shape[i])
      return false;
  return true;
}

int64_t CheckpointPiece::bytes() const { return block.elements() * dtype_bytes(dtype); }

std::string shard_table_text(const ShardTable& table) {
  std::string text(kShardHeading);
  text += fmt::format("step {}\nhost {} of {}\nfile {} {:08x}\n", table.step, table.host.index,
                      table.host.count, table.bytes, table.rest_checksum);
  for (const CheckpointPiece& piece : table.pieces) {
    CHECK(piece.array.find('\n') == std::string::npos, "'{}': a name of two lines", piece.array);
    text += fmt::format("{} {} at {} of {} in {} from {} sums {:08x} {}\n", dtype_name(piece.dtype),
                        shape_text(piece.shape), shape_text(piece.block.origin),
                        shape_text(piece.block.shape), shape_text(piece.tile), piece.file_offset,
                        fmt::join(piece.checksums, ","), piece.array);
  }
  return ended(std::move(text));
}

ShardTable parse_shard_table(std::string_view all, const std::string& where) {
  TableText text(all, where);
  ShardTable table;
  text.literal(kShardHeading);
  table.step = text.integer("step ");
  table.host.index = text.integer("\nhost ");
  table.host.count = text.integer(" of ");
  table.bytes = text.integer("\nfile ");
  table.rest_checksum = text.hex(" ");
  text.literal("\n");
  while (!text.at_end()) {
    const CheckpointPiece& piece = table.pieces.emplace_back(parse_piece(text));
    if (!is_sound(piece, table.bytes))
      fail("{}: the piece of '{}' contradicts itself or the file's size", where, piece.array);
  }
  if (!gaps(table)) fail("{}: two pieces overlap in the file", where);
  return table;
}

std::string index_table_text(const IndexTable& table) {
  const CheckpointInfo& info = table.info;
  std::string text = fmt::format("{}{}\n", kIndexHeading, kCheckpointVersion);
  text += fmt::format("step {}\nseed {}\ninput_position {}\nhosts {}\n", info.step, info.seed,
                      info.input_position, table.tables.size());
  text += fmt::format("index {} {:08x}\n", table.index.bytes, table.index.checksum);
  for (const IndexTable::File& file : table.tables)
    text += fmt::format("shard {} {:08x}\n", file.bytes, file.checksum);
  put_text(&text, kCheckpointHparams, info.hparams);
  for (const auto& [name, value] : info.input_extra)
    put_text(&text, std::string(kInputExtra) + name, value);
  return ended(std::move(text));
}

namespace {

IndexTable::File parse_file(TableText& text, std::string_view what) {
  IndexTable::File file;
  file.bytes = text.integer(what);
  file.checksum = text.hex(" ");
  text.literal("\n");
  return file;
}

void parse_text(TableText& text, CheckpointInfo* info) {
  const auto name_bytes = text.integer("text ");
  const auto value_bytes = text.integer(" ");
  text.literal(" ");
  const std::string name = text.take(name_bytes);
  text.literal("\n");
  std::string value = text.take(value_bytes);
  text.literal("\n");
  if (name == kCheckpointHparams) {
    info->hparams = std::move(value);
  } else if (name.starts_with(kInputExtra)) {
    info->input_extra[name.substr(kInputExtra.size())] = std::move(value);
  } else {
    text.refuse("another text");
  }
}

}  // namespace

IndexTable parse_index_table(std::string_view all, const std::string& where) {
  TableText text(all, where);
  IndexTable table;
  if (const int64_t version = text.integer(kIndexHeading); version != kCheckpointVersion)
    throw UnknownFormat(where, version);
  table.info.step = text.integer("\nstep ");
  table.info.seed = text.integer<uint64_t>("\nseed ");
  table.info.input_position = text.integer("\ninput_position ");
  const int64_t hosts = text.integer("\nhosts ");
  text.literal("\n");
  if (hosts < 1 || hosts > kMostHosts) text.refuse("a number of hosts");
  table.index = parse_file(text, "index ");
  for (int64_t i = 0; i < hosts; ++i) table.tables.push_back(parse_file(text, "shard "));
  while (!text.at_end()) parse_text(text, &table.info);
  return table;
}

std::string read_table(const std::filesystem::path& path) {
  return read_file(path, kMostTableBytes);
}

uint32_t file_checksum(const ByteFile& file) { return range_checksum(file, 0, file.size(), 0); }

uint32_t rest_checksum(const ByteFile& file, const ShardTable& table) {
  const std::optional<Runs> rest = gaps(table);
  CHECK(rest, "two pieces overlap");
  uint32_t sum = 0;
  for (const auto& [begin, end] : *rest) sum = range_checksum(file, begin, end, sum);
  return sum;
}

Tiles::Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile)
    : shape_(std::move(shape)), tile_(std::move(tile)) {
  CHECK(shape_.size() == tile_.size());
  for (size_t i = 0; i < shape_.size(); ++i) {
    CHECK(tile_[i] > 0 || shape_[i] == 0);
    grid_.push_back(shape_[i] == 0 ? 0 : (shape_[i] + tile_[i] - 1) / tile_[i]);
    count_ *= grid_.back();
  }
}

Region Tiles::at(int64_t number) const {
  Region region = Region::whole(shape_);
  for (size_t i = shape_.size(); i-- > 0; number /= grid_[i]) {
    region.origin[i] = number % grid_[i] * tile_[i];
    region.shape[i] = std::min(tile_[i], shape_[i] - region.origin[i]);
  }
  return region;
}

}  // namespace tessera
