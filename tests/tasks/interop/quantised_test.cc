// SPDX-License-Identifier: Apache-2.0
// Import of quantised weights, against the goldens of tests/golden/hugging_face.py (quantised/).
#include <cmath>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tasks/interop/hf_files.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Floats = std::vector<float>;

fs::path golden(const std::string& name) { return hf_golden("") / "../quantised" / name; }

// Bits as integers: a NaN equals a NaN, 0 does not equal -0.
std::vector<uint32_t> bits_of(const Floats& values) {
  std::vector<uint32_t> bits;
  for (const float value : values)
    bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  return bits;
}

// Elements [first, end) of a tensor.
template <typename Files>
std::vector<uint32_t> bits_in(const Files& files, const std::string& name, int64_t first,
                              int64_t end) {
  Floats values(static_cast<size_t>(end - first), 7.0f);
  files.read(name, first, values);
  return bits_of(values);
}

void require_same_bits(const HfFiles& files, const std::string& name, const SafetensorsFile& theirs,
                       const SafetensorsTensor& expected) {
  INFO(name);
  const SafetensorsTensor* const found = files.find(name);
  REQUIRE(found != nullptr);
  REQUIRE(found->shape == expected.shape);
  Floats values(static_cast<size_t>(expected.elements()));
  theirs.read(expected, 0, values);
  const std::vector<uint32_t> bits = bits_of(values);
  const auto size = std::ssize(bits);
  REQUIRE(bits_in(files, name, 0, size) == bits);
  // In pieces that begin and end within rows, blocks and groups.
  for (const int64_t piece : {size / 3 + 1, size / 7 + 1})
    for (int64_t first = 0; first < size; first += piece) {
      const int64_t end = std::min(size, first + piece);
      REQUIRE(bits_in(files, name, first, end) ==
              std::vector<uint32_t>(bits.begin() + first, bits.begin() + end));
    }
}

// The tensors are those of dequantised.safetensors.
void require_dequantised(const HfFiles& files, const std::string& name) {
  const SafetensorsFile theirs(golden(name) / "dequantised.safetensors");
  std::vector<std::string> names;
  for (const SafetensorsTensor& expected : theirs.header().tensors) {
    names.push_back(expected.name);
    require_same_bits(files, expected.name, theirs, expected);
  }
  std::ranges::sort(names);
  REQUIRE(files.names() == names);
}

TEST_CASE("quantised tensors have the bits of transformers, whole and in pieces") {
  for (const char* name : {"deepseek_v3_fp8", "gpt_oss_mxfp4", "mxfp4_scales"}) {
    INFO(name);
    require_dequantised(HfFiles(golden(name)), name);
  }
  REQUIRE(HfFiles(golden("mxfp4_scales")).find("w")->text() == "BF16[2 64 64]");
}

// A copy of a golden with another config.json.
void write_with(const fs::path& directory, const std::string& name, const std::string& config) {
  fs::create_directories(directory);
  fs::copy_file(golden(name) / "model.safetensors", directory / "model.safetensors",
                fs::copy_options::overwrite_existing);
  write_file_atomically(directory / "config.json", config);
}

TEST_CASE("blocks at the edges are smaller, and values are rounded to the dtype of the model") {
  const TemporaryDirectory directory;
  const SafetensorsFile theirs(golden("fp8_edges") / "dequantised.safetensors");
  for (const std::string dtype : {"float32", "bfloat16", "float16"}) {
    write_with(directory.path(), "fp8_edges",
               fmt::format(R"({{"dtype": "{}", "quantization_config": {{"quant_method": "fp8",
                               "weight_block_size": [4, 3]}}}})",
                           dtype));
    const HfFiles files(directory.path());
    REQUIRE(files.names() == std::vector<std::string>{"every", "half", "plain", "stacked"});
    size_t compared = 0;
    for (const SafetensorsTensor& expected : theirs.header().tensors) {
      if (!expected.name.starts_with(dtype)) continue;
      require_same_bits(files, expected.name.substr(dtype.size() + 1), theirs, expected);
      ++compared;
    }
    REQUIRE(compared == 4);
  }
}

TEST_CASE("a quantised model has the logits of transformers, and is exported without its method") {
  for (const std::string name : {"deepseek_v3_fp8", "gpt_oss_mxfp4"}) {
    INFO(name);
    const std::string file = (golden(name) / "config.json").string(), text = read_file(file);
    const TemporaryDirectory directory;
    const HfConfig hf_config = read_hf_config(text, file);
    REQUIRE(std::ranges::count(hf_config.unread, "quantization_config") == 0);
    const ExperimentConfig config = hf_experiment(model_of_hf(hf_config, StackStyle::kRepeated));
    import_hf(config, golden(name), directory / "run");
    const HfScores scores = read_scores(golden(name));
    double largest = 0.0;
    for (const float value : scores.logits) largest = std::max(largest, std::abs(double{value}));
    REQUIRE(largest_difference(logits_of(config, directory / "run", scores.ids), scores.logits) <
            1e-5 * largest);
    RunWith options;
    options.of_mode<ExportOptions>().dtype = "f32";
    export_hf(config, directory / "run", directory / "out", options);
    const HfFiles out(directory / "out");
    require_dequantised(out, name);
    REQUIRE(read_file(directory / "out/config.json") ==
            with_dtype(without_quantization(text), "float32"));
  }
}

TEST_CASE("quantization_config alone is removed from a config.json") {
  const auto with = [](const std::string& value) {
    return R"("quantization_config": {"quant_method": "fp8", "a}\"": [{"b": "{"}], "c": {}})" +
           value;
  };
  REQUIRE(without_quantization("{\n  " + with(",\n  \"x\": 1") + "\n}\n") == "{\n  \"x\": 1\n}\n");
  REQUIRE(without_quantization("{\n  \"x\": [1,\n  2],\n  " + with("\n}\n")) ==
          "{\n  \"x\": [1,\n  2]\n}\n");
  REQUIRE(without_quantization("{" + with("}")) == "{}");
  REQUIRE(without_quantization("{" + with(",") + with("}")) == "{}");
  const std::string none = R"({"x": "\"quantization_config\": {", "quantization_config": null})";
  REQUIRE(without_quantization(none) == none);
}

TEST_CASE("other methods and settings of quantisation are refused by name") {
  const TemporaryDirectory directory;
  const auto message = [&](const std::string& settings) {
    write_with(directory.path(), "fp8_edges",
               R"({"quantization_config": {)" + settings + R"(, "weight_block_size": [4, 3]}})");
    return error_of([&] { HfFiles{directory.path()}; });
  };
  const std::string fp8 = R"("quant_method": "fp8", )";
  REQUIRE(message(R"("quant_method": "fp8", "activation_scheme": "dynamic")") == "no error");
  for (const std::string method : {"gptq", "awq", "bitsandbytes", "compressed-tensors", "mxfp8"})
    REQUIRE_THAT(
        message(fmt::format(R"("quant_method": "{}")", method)),
        Contains(fmt::format("config.json: quantization_config: weights quantised by '{}' are not "
                             "read, expected fp8 or mxfp4; convert them to bf16 or f32",
                             method)));
  REQUIRE_THAT(message(R"("load_in_4bit": true)"), Contains("lacks 'quant_method'"));
  // Also if the file has a dtype that is not known.
  write_file_atomically(directory / "model.safetensors", "?");
  write_file_atomically(directory / "config.json",
                        R"({"quantization_config": {"quant_method": "nvfp4"}})");
  REQUIRE_THAT(error_of([&] { HfFiles{directory.path()}; }), Contains("quantised by 'nvfp4'"));
  REQUIRE_THAT(message(fp8 + R"("activation_scheme": "static")"),
               Contains("activation_scheme is 'static', expected 'dynamic'"));
  REQUIRE_THAT(message(fp8 + R"("expert_dtype": "fp4")"),
               Contains("expert_dtype is 'fp4', expected 'fp8'"));
  REQUIRE_THAT(
      message(R"("quant_method": "mxfp4")"),
      Contains("'every' is F8_E4M3[16 16], expected a matrix, and a quantization_config in "
               "config.json with quant_method fp8"));
  const auto blocks = [&](const std::string& sizes) {
    write_with(directory.path(), "fp8_edges",
               R"({"quantization_config": {)" + fp8 + R"("weight_block_size": )" + sizes + "}}");
    return error_of([&] { HfFiles{directory.path()}; });
  };
  for (const std::string sizes : {"null", "[4]", "4"})
    REQUIRE_THAT(blocks(sizes), Contains("weight_block_size is not a list of two sizes"));
  for (const std::string sizes : {"[0, 3]", "[4, -1]"})
    REQUIRE_THAT(blocks(sizes),
                 Contains("weight_block_size is " + sizes + ", expected sizes from"));
  REQUIRE_THAT(blocks("[4, 4.5]"), Contains("weight_block_size[1] is a number, expected a whole"));
  REQUIRE_THAT(blocks("[4, 4]"), Contains("'every_scale_inv' is F32[4 6], expected F32[4 4] for "
                                          "'every', F8_E4M3[16 16]"));
  REQUIRE_THAT(blocks("[9223372036854775807, 3]"), Contains("expected F32[1 6]"));
}

// The header of a golden's file, with `from` replaced by `to` of the same length.
std::string message_with(const std::string& name, const std::string& from, const std::string& to) {
  const TemporaryDirectory directory;
  write_with(directory.path(), name, read_file(golden(name) / "config.json"));
  std::string bytes = read_file(directory / "model.safetensors");
  REQUIRE(from.size() == to.size());
  bytes.replace(bytes.find(from), from.size(), to);
  write_file_atomically(directory / "model.safetensors", bytes);
  return error_of([&] { HfFiles{directory.path()}; });
}

TEST_CASE("scales that are missing, or of another shape or dtype, are errors") {
  REQUIRE_THAT(message_with("fp8_edges", "every_scale_inv", "evers_scale_inv"),
               Contains("'every' is F8_E4M3[16 16] and lacks its scales, 'every_scale_inv'"));
  REQUIRE_THAT(message_with("fp8_edges", R"("F32","shape":[4,6])", R"("I32","shape":[4,6])"),
               Contains("'every_scale_inv' is I32[4 6], expected F32[4 6] for 'every'"));
  REQUIRE_THAT(
      message_with("fp8_edges", R"("F8_E4M3","shape":[16,16])", R"("F8_E4M3","shape":[256  ])"),
      Contains("'every' is F8_E4M3[256], expected a matrix"));
  REQUIRE_THAT(message_with("mxfp4_scales", "w_scales", "w_scalez"),
               Contains("'w_blocks' is U8[2 64 2 16] and lacks its scales, 'w_scales'"));
  REQUIRE_THAT(message_with("mxfp4_scales", "[2,64,2]", "[2,2,64]"),
               Contains("'w_scales' is U8[2 2 64], expected U8[2 64 2] for 'w_blocks'"));
  REQUIRE_THAT(message_with("mxfp4_scales", "[2,64,2,16]", "[2,64,4, 8]"),
               Contains("'w_blocks' is U8[2 64 4 8], expected U8[experts rows groups 16]"));
}

TEST_CASE("mutated files and settings of quantised weights are at worst refused") {
  const TemporaryDirectory directory;
  const auto read_all = [&] {
    const HfFiles files(directory.path());
    for (const std::string& name : files.names())
      bits_in(files, name, 0, files.find(name)->elements());
  };
  for (const char* name : {"fp8_edges", "mxfp4_scales"}) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      INFO(name << " " << file);
      write_with(directory.path(), name, read_file(golden(name) / "config.json"));
      const auto target = [&](std::string_view bytes) {
        write_bytes(directory / file, bytes);
        read_all();
      };
      const FuzzReport report =
          fuzz("hf_files", {read_file(golden(name) / file)}, target, kFastFuzz / 10);
      REQUIRE(report.refused > 0);
      REQUIRE(report.refused < report.inputs);
    }
  }
}

}  // namespace
}  // namespace tessera
