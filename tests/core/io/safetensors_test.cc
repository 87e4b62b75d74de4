// SPDX-License-Identifier: Apache-2.0
#include "core/io/safetensors.h"

#include <cstring>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string with_length(const std::string& json) {
  std::string head;
  for (int i = 0; i < 8; ++i) head += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return head + json;
}

// Parses a header that is followed by `data_bytes` bytes of data.
SafetensorsHeader parse(const std::string& json, int64_t data_bytes) {
  const std::string head = with_length(json);
  return parse_safetensors_header(head, static_cast<int64_t>(head.size()) + data_bytes, "w");
}

std::string message_of(const std::string& json, int64_t data_bytes) {
  return error_of([&] { parse(json, data_bytes); });
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST_CASE("tensors are sorted by offset, with any alignment") {
  const SafetensorsHeader header = parse(
      R"({"b":)" + tensor("F32", "[2,1]", "[3,11]") + R"(,"a":)" + tensor("U8", "[3]", "[0,3]") +
          R"(,"none":)" + tensor("F64", "[0,7]", "[3,3]") + R"(,"scalar":)" +
          tensor("BF16", "[]", "[11,13]") + R"(,"__metadata__":{"format":"pt"}})",
      13);
  REQUIRE(header.metadata.at("format") == "pt");
  REQUIRE(header.tensors.size() == 4);
  REQUIRE(header.tensors[0].name == "a");
  REQUIRE(header.tensors[1].name == "none");
  REQUIRE(header.tensors[2].text() == "F32[2 1]");
  REQUIRE(header.tensors[3].elements() == 1);
  REQUIRE(header.tensors[2].begin - header.tensors[0].begin == 3);
}

TEST_CASE("an inconsistent header is refused with its place") {
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("F32", "[2]", "[0,4]") + "}", 4),
               Contains("a.data_offsets span 4 bytes, but F32[2] has 8"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("F31", "[2]", "[0,8]") + "}", 8),
               Contains("a.dtype is 'F31', expected one of F64, F32") && Contains("did you mean"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("F8_E5M2", "[2]", "[0,2]") + "}", 2),
               Contains("a.dtype is 'F8_E5M2', expected one of"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[-1]", "[0,0]") + "}", 0),
               Contains("a.shape[0] is -1, expected 0 or more"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[4294967296,4294967296]", "[0,0]") + "}", 0),
               Contains("a.shape: the number of bytes overflows 64 bits"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[2]", "[2,0]") + "}", 2),
               Contains("ends at 0, before it begins at 2"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[2]", "[0]") + "}", 2),
               Contains("has 1 numbers, expected a begin and an end"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[2]", "[0,18446744073709551615]") + "}", 2),
               Contains("expected a whole number"));
  REQUIRE_THAT(
      message_of(R"({"a":)" + tensor("U8", "[4]", "[0,4]") + R"(,"b":)" +
                     tensor("U8", "[4]", "[2,6]") + "}",
                 6),
      Contains("tensor 'b' begins at byte 2 of the data and overlaps 'a', which ends at 4"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[4]", "[2,6]") + "}", 6),
               Contains("2 bytes of the data between the header and 'a' belong to no tensor"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[4]", "[0,4]") + "}", 9),
               Contains("5 bytes after the last tensor belong to no tensor"));
  REQUIRE_THAT(message_of(R"({"a":)" + tensor("U8", "[4]", "[0,4]") + R"(,"a":)" +
                              tensor("U8", "[4]", "[4,8]") + "}",
                          8),
               Contains("'a' is in the header twice"));
  REQUIRE_THAT(message_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1),
               Contains("a lacks 'data_offsets'"));
  REQUIRE_THAT(message_of("[]", 0), Contains("expected an object"));
  REQUIRE_THAT(message_of(R"({"__metadata__":{"x":1}})", 0), Contains("expected a string"));
}

TEST_CASE("truncated files and files of other formats have different errors") {
  REQUIRE_THAT(
      message_of(R"({"a":)" + tensor("U8", "[4]", "[0,4]") + "}", 3),
      Contains("the file is truncated: the tensors up to 'a' take 4 bytes, but 3 are present"));
  REQUIRE_THAT(error_of([] { safetensors_head_bytes("abc", 3, "w"); }),
               Contains("w: 3 bytes are not a safetensors file"));
  REQUIRE_THAT(error_of([] { safetensors_head_bytes("PK\3\4abcdefgh", 12, "w"); }),
               Contains("is this a safetensors file?"));
  REQUIRE_THAT(
      error_of([] { safetensors_head_bytes(std::string("\x40\0\0\0\0\0\0\0", 8), 20, "w"); }),
      Contains("the header length is 64 bytes, but the file has 20"));
  REQUIRE_THAT(error_of([] { SafetensorsFile("/nowhere/model.safetensors"); }),
               Contains("/nowhere/model.safetensors: cannot open: No such file"));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_CASE("every dtype is read as f32") {
  const TemporaryDirectory directory;
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"F64", bytes_of<double>({1.5, -2.0, 7.0})},
      {"F32", bytes_of<float>({1.5f, -2.0f, 7.0f})},
      {"BF16", bytes_of<uint16_t>({0x3fc0, 0xc000, 0x40e0})},
      {"F16", bytes_of<uint16_t>({0x3e00, 0xc000, 0x4700})},
      {"I64", bytes_of<int64_t>({1, -2, 7})},
      {"I32", bytes_of<int32_t>({1, -2, 7})},
      {"I16", bytes_of<int16_t>({1, -2, 7})},
      {"I8", bytes_of<int8_t>({1, -2, 7})},
      {"U64", bytes_of<uint64_t>({1, 2, 7})},
      {"U32", bytes_of<uint32_t>({1, 2, 7})},
      {"U16", bytes_of<uint16_t>({1, 2, 7})},
      {"U8", bytes_of<uint8_t>({1, 2, 7})},
      {"F8_E4M3", bytes_of<uint8_t>({0x3c, 0xc0, 0x4e})},
      {"BOOL", bytes_of<uint8_t>({1, 0, 1})}};
  for (const auto& [dtype, bytes] : kinds) {
    INFO(dtype);
    const std::string header =
        R"({"x":)" + tensor(dtype, "[3]", "[0," + std::to_string(bytes.size()) + "]") + "}";
    write_bytes(directory / "x", with_length(header) + bytes);
    const SafetensorsFile file(directory / "x");
    std::vector<float> values(2);
    file.read(file.header().tensors[0], 1, values);
    const float sign = dtype[0] == 'U' ? 1.0f : -1.0f;
    REQUIRE(values[0] == (dtype == "BOOL" ? 0.0f : sign * 2.0f));
    REQUIRE(values[1] == (dtype == "BOOL" ? 1.0f : 7.0f));
  }
}

SafetensorsPlan three_tensors(SafetensorsType type, int64_t max_file_bytes) {
  return {{{"a", type, {2, 3}, 0}, {"empty", type, {0}, 0}, {"b\"", type, {5}, 0}}, max_file_bytes};
}

std::vector<float> counting(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i) - 3.5f);
  return values;
}

TEST_CASE("written tensors are read back, in one file and in several") {
  for (const SafetensorsType type : {SafetensorsType::kF64, SafetensorsType::kF32,
                                     SafetensorsType::kBF16, SafetensorsType::kF16}) {
    for (const int64_t most : {1, 1000}) {
      const TemporaryDirectory directory;
      SafetensorsWriter writer(directory.path(), three_tensors(type, most));
      const std::vector<float> values = counting(11);
      writer.write(std::span(values).first(4));
      writer.write(std::span(values).subspan(4));
      writer.finish();
      REQUIRE(writer.files().size() == (most == 1 ? 4 : 1));
      const SafetensorsModel model(directory.path());
      REQUIRE(model.names() == std::vector<std::string>{"a", "b\"", "empty"});
      std::vector<float> a(6), b(5);
      model.read("a", 0, a);
      model.read("b\"", 0, b);
      REQUIRE(std::equal(a.begin(), a.end(), values.begin()));
      REQUIRE(std::equal(b.begin(), b.end(), values.begin() + 6));
      // A header that ends on a multiple of eight, as other readers like it.
      const std::string bytes = read_bytes(directory / writer.files()[0]);
      REQUIRE(static_cast<unsigned char>(bytes[0]) % 8 == 0);
    }
  }
}

TEST_CASE("a value beyond the range of f16 is not written as infinity") {
  const TemporaryDirectory directory;
  SafetensorsWriter writer(directory.path(), three_tensors(SafetensorsType::kF16, 1000));
  REQUIRE_THAT(
      error_of([&] {
        writer.write(std::vector<float>{1.0f, 70000.0f});
      }),
      Contains("'a' has the value 70000, beyond the f16 maximum of 65504; write f32 or bf16"));
}

TEST_CASE("an unfinished writer leaves no files") {
  const TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory.path(), three_tensors(SafetensorsType::kF32, 1000));
    writer.write(counting(5));
  }
  REQUIRE(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("an index must agree with its files and stay in its directory") {
  const TemporaryDirectory directory;
  SafetensorsWriter writer(directory.path(), three_tensors(SafetensorsType::kF32, 1));
  writer.write(counting(11));
  writer.finish();
  const auto index_with = [&](const std::string& map) {
    write_bytes(directory / "model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
    return error_of([&] { SafetensorsModel{directory.path()}; });
  };
  REQUIRE(index_with(R"("a": "model-00001-of-00003.safetensors")") == "no error");
  REQUIRE_THAT(index_with(R"("b\"": "model-00001-of-00003.safetensors")"),
               Contains("'b\"' is listed in model-00001-of-00003.safetensors, which does not"));
  REQUIRE_THAT(index_with(R"("a": "gone.safetensors")"), Contains("gone.safetensors: cannot open"));
  REQUIRE_THAT(index_with(R"("a": "../a.safetensors")"),
               Contains("weight_map.a is '../a.safetensors', expected the name of a file beside"));
  std::filesystem::copy(directory / "model-00001-of-00003.safetensors", directory / "copy");
  REQUIRE_THAT(index_with(R"("a": "model-00001-of-00003.safetensors", "b": "copy")"),
               Contains("tensor 'a' is in copy and in model-00001-of-00003.safetensors"));
  std::filesystem::remove(directory / "model.safetensors.index.json");
  REQUIRE_THAT(error_of([&] { SafetensorsModel{directory.path()}; }),
               Contains("has neither model.safetensors nor model.safetensors.index.json"));
}

// Whole files, as the reader sees them.
void read_as_file(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t head = safetensors_head_bytes(bytes.substr(0, 8), size, "input");
  const SafetensorsHeader header =
      parse_safetensors_header(bytes.substr(0, static_cast<size_t>(head)), size, "input");
  for (const SafetensorsTensor& each : header.tensors) {
    const int64_t end = each.begin + each.elements() * safetensors_type_bytes(each.type);
    if (each.begin < head || end > size) throw std::logic_error("a tensor beyond the file");
  }
}

std::vector<std::string> file_seeds() {
  const std::string two = R"({"w":)" + tensor("F32", "[2,3]", "[0,24]") + R"(,"b":)" +
                          tensor("BF16", "[4]", "[24,32]") + R"(,"__metadata__":{"format":"pt"}})";
  const std::string one = R"({"x":)" + tensor("I64", "[]", "[0,8]") + "}";
  return {with_length(two) + std::string(32, 'w'), with_length(one) + std::string(8, 'x'),
          with_length("{}")};
}

const std::vector<std::string> kIndexes = {
    R"({"metadata": {"total_size": 12}, "weight_map": {"a": "m-1.safetensors", "b": "m-2"}})"};

TEST_CASE("a corrupted safetensors file is read or refused, never a crash") {
  const FuzzReport report = fuzz("safetensors", file_seeds(), read_as_file, kFastFuzz);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
  fuzz(
      "safetensors_index", kIndexes,
      [](std::string_view text) { parse_safetensors_index(text, "input"); }, kFastFuzz);
}

TEST_CASE("a million corrupted safetensors files are read or refused, never a crash", "[full]") {
  fuzz("safetensors", file_seeds(), read_as_file, kFullFuzz);
  fuzz(
      "safetensors_index", kIndexes,
      [](std::string_view text) { parse_safetensors_index(text, "input"); }, kFullFuzz);
}

}  // namespace
}  // namespace tessera
