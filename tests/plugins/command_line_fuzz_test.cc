// SPDX-License-Identifier: Apache-2.0
// Fuzz test of command lines: flags from help texts and fields from --describe, with random values
// and files. Every program must exit in time and within its memory limit, with one of the
// documented exit codes and an error message.
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

const std::string& one_of(const std::vector<std::string>& all, Random& random) {
  return all[random() % all.size()];
}

// The text before and after a flag's '=' in help texts: "--exp=", "--list".
std::vector<std::string> flags_of_help(const std::string& program, const fs::path& directory,
                                       const std::vector<std::string>& modes = {}) {
  std::string help = run_limited(program, {"--help"}, directory).output;
  for (const std::string& mode : modes)
    help += run_limited(program, {"--mode=" + mode, "--help"}, directory).output;
  std::set<std::string> flags;
  for (size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 2)) {
    size_t end = at + 2;
    while (end < help.size() && (std::islower(help[end]) || help[end] == '_')) ++end;
    if (end == at + 2) continue;
    flags.insert(help.substr(at, end - at) + (help[end] == '=' || help[end] == ' ' ? "=" : ""));
    flags.insert(help.substr(at, end - at));
  }
  return {flags.begin(), flags.end()};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The first word of each line of --list.
std::vector<std::string> experiments_of(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(list)) names.push_back(line.substr(0, line.find(' ')));
  return names;
}

struct Field {
  std::string path;
  std::string value;
};

// "path = value  # source", as --describe prints it.
std::vector<Field> fields_of(const std::string& description) {
  std::vector<Field> fields;
  for (const std::string& line : lines_of(description)) {
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const size_t begin = equals + 3, end = line.find_last_not_of(' ', line.find("  #") - 1);
    fields.push_back({line.substr(0, equals), line.substr(begin, end + 1 - begin)});
  }
  return fields;
}

std::vector<std::string> hostile_values() {
  return {"",
          "0",
          "1",
          "2",
          "3",
          "7",
          "-1",
          "+1",
          "1e3",
          "1.5",
          "1e308",
          "-1e400",
          "nan",
          "inf",
          "9223372036854775807",
          "-9223372036854775808",
          "18446744073709551616",
          "4294967296",
          "2147483648",
          "1000000",
          "1000000007",
          "true",
          "no",
          "[]",
          "[1,1,1]",
          "[1,1",
          "[4294967296,4294967296,2]",
          "[-1,1,1]",
          "[1,1,1,1,1,1,1,1]",
          "[[1]]",
          "{}",
          "{type = \"SiLU\"}",
          "{type = \"Nothing\"}",
          "\"",
          "\"\\u0000\"",
          "'",
          "=",
          "a=b",
          "bf16",
          "f32",
          "f16",
          "f64",
          "fp8",
          "bytes",
          "plan",
          "eval",
          "train",
          "newest",

          "all",
          "batch -> data",
          "batch -> (data, data)",
          "embed ->",
          "-> mdl",
          "seq -> mdl; embed -> mdl",
          "\xff\xfe\xfd",
          "\x1b[31m",
          "%s%n",
          "$(reboot)",
          "a\nb",
          "a\tb",
          "..",
          ".",
          "~",
          "🙂",
          std::string(5000, 'x'),
          std::string(300, '.') + "/absent",
          std::string(2000, '['),
          "absent",
          "absent/absent",
          "fifo",
          "folder",
          "empty",
          "zero",
          "loop",
          "sparse",
          "text",
          "noise",
          "full",
          "folder/fifo",
          "text/below",
          "socket.so",
          "broken.so",
          "*",
          "**/*",
          "[",
          "0:1",
          "1:0",
          "-1:5",
          "3:99999999999999999999",
          ":"};
}

// Values of a field's own type, which pass its type check. The type is inferred from the value that
// --describe prints.
std::vector<std::string> values_like(const std::string& value) {
  if (value.starts_with('[')) return {"[]", "[1,1,1]", "[2,2,2]", "[1048576,1,16]", "[0]", "[-1]"};
  if (value.find_first_not_of("-0123456789") == std::string::npos)
    return {"0",
            "1",
            "2",
            "3",
            "5",
            "1000",
            "65536",
            "1000000007",
            "4294967296",
            "1099511627776",
            "9223372036854775807",
            "-1",
            "-9223372036854775808"};
  if (value.find_first_not_of("-+.0123456789einfa") == std::string::npos)
    return {"0.0",   "-0.0", "1.0",   "-1.0", "0.5",  "1e-320",
            "1e-30", "1e30", "1e308", "inf",  "-inf", "nan"};
  return hostile_values();
}

// Special files as inputs and outputs. Devices are only reachable through links, because a program
// that replaces its output file would replace the device itself.
void make_files(const fs::path& directory) {
  fs::create_directories(directory / "folder");
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0666) == 0);
  REQUIRE(::mkfifo((directory / "folder/fifo").c_str(), 0666) == 0);
  REQUIRE(::mkfifo((directory / "socket.so").c_str(), 0666) == 0);
  fs::create_symlink("/dev/zero", directory / "zero");
  fs::create_symlink("/dev/full", directory / "full");
  fs::create_symlink("loop", directory / "loop");
  write_bytes(directory / "empty", "");
  write_bytes(directory / "text", "To be, or not to be.\n");
  write_bytes(directory / "broken.so",
              "\x7f"
              "ELF broken");
  Random random(7);
  std::string noise;
  for (int i = 0; i < 5000; ++i) noise += static_cast<char>(random());
  write_bytes(directory / "noise", noise);
  write_bytes(directory / "sparse", "");
  fs::resize_file(directory / "sparse", uintmax_t{1} << 40);
}

class Grammar {
 public:
  explicit Grammar(const fs::path& directory)
      : flags_(flags_of_help("runexp", directory, {"train", "plan", "replay", "sweep", "export"})),
        build_flags_(flags_of_help("flat_tokens", directory)),
        experiments_(experiments_of(run_limited("runexp", {"--list"}, directory).output)) {
    REQUIRE(flags_.size() > 30);
    REQUIRE(build_flags_.size() > 20);
    REQUIRE(experiments_.size() > 5);
    for (const std::string& experiment : experiments_) {
      fields_.push_back(fields_of(
          run_limited("runexp", {"--exp=" + experiment, "--describe"}, directory).output));
      if (experiment != "hf.Pretrained") REQUIRE(fields_.back().size() > 20);
    }
  }

  // One or two fields of an experiment: planned, started without a step, or trained for one step.
  std::vector<std::string> settings(Random& random) const {
    const size_t which = random() % experiments_.size();
    std::vector<std::string> words = {"--exp=" + experiments_[which]};
    const uint64_t kind = random() % 4;
    words.push_back(kind == 0 ? "--mode=plan" : "--dry_run");
    for (uint64_t i = random() % 3 + 1; i > 0 && !fields_[which].empty(); --i) {
      words.push_back("--set");
      const auto& [path, value] = fields_[which][random() % fields_[which].size()];
      const bool own_type = random() % 4 != 0;
      words.push_back(path + "=" + one_of(own_type ? values_like(value) : values_, random));
    }
    return words;
  }

  // Any flags with any values.
  std::vector<std::string> flags(Random& random) const {
    std::vector<std::string> words = {"--exp=bench.Gpt2Tiny", "--set", "num_train_steps=1"};
    if (random() % 3 == 0) words[0] = "--exp=" + one_of(values_, random);
    if (random() % 2 == 0) words.push_back("--dry_run");
    append(words, flags_, random() % 3 + 1, random);
    return words;
  }

  std::vector<std::string> build(Random& random) const {
    std::vector<std::string> words = {
        one_of({"build", "build", "build", "inspect", "import", "train", "nothing"}, random)};
    if (random() % 4 != 0)
      words.push_back(
          "--output=" +
          one_of({"out.h5", "fifo", "folder", "full", "absent/out.h5", "out.model"}, random));
    append(words, build_flags_, random() % 3, random);
    for (uint64_t i = random() % 3; i > 0; --i) words.push_back(one_of(values_, random));
    return words;
  }

 private:
  void append(std::vector<std::string>& words, const std::vector<std::string>& flags,
              uint64_t count, Random& random) const {
    for (; count > 0; --count) {
      const std::string& flag = one_of(flags, random);
      words.push_back(flag.ends_with('=') ? flag + one_of(values_, random) : flag);
    }
  }

  std::vector<std::string> values_ = hostile_values();
  std::vector<std::string> flags_, build_flags_, experiments_;
  std::vector<std::vector<Field>> fields_;  // One list per experiment.
};

// Returns the error in how a program ended, or "".
std::string problem_of(const RunResult& result) {
  if (result.timed_out) return "did not end in time";
  if (result.exit_code < 0) return fmt::format("was ended by signal {}", -result.exit_code);
  if (result.exit_code > 2) return fmt::format("ended with exit code {}", result.exit_code);
  if (result.exit_code != 0 && result.errors.empty()) return "failed without a message";
  for (const char* raw : {"std::", "filesystem error", "basic_string", "vector::",
                          "terminate called", "Sanitizer", "runtime error:", "CHECK", "HDF5-DIAG"})
    if (result.errors.find(raw) != std::string::npos) return fmt::format("says '{}'", raw);
  if ((result.output + result.errors).find("-nan") != std::string::npos) return "says '-nan'";
  return "";
}

// Runs the command lines `first` to `first + count`. A number always gives the same command line.
void run_command_lines(uint64_t first, uint64_t count) {
  const TemporaryDirectory directory;
  const Grammar grammar(directory.path());
  int64_t refused = 0;
  for (uint64_t number = first; number < first + count; ++number) {
    Random random(number);
    const fs::path place = directory / fmt::format("{}", number);
    make_files(place);
    const bool build = number % 5 == 4;
    const std::vector<std::string> words = build             ? grammar.build(random)
                                           : number % 2 == 0 ? grammar.settings(random)
                                                             : grammar.flags(random);
    const RunResult result = run_limited(build ? "flat_tokens" : "runexp", words, place);
    INFO(fmt::format("command line {}: {} '{}'\n{}\n{}", number, build ? "flat_tokens" : "runexp",
                     fmt::join(words, "' '"), result.output, result.errors));
    const std::string problem = problem_of(result);
    if (!problem.empty()) FAIL_CHECK(problem);
    if (result.exit_code != 0) ++refused;
    // The special files still have their types.
    if (fs::status(place / "fifo").type() != fs::file_type::fifo || !fs::is_symlink(place / "full"))
      FAIL_CHECK("a special file was replaced");
    std::error_code ignored;
    fs::remove_all(place, ignored);
  }
  REQUIRE(refused > static_cast<int64_t>(count / 4));
}

TEST_CASE("40 random command lines exit cleanly or with an error message") {
  run_command_lines(0, 40);
}

TEST_CASE("1000 random command lines exit cleanly or with an error message", "[full]") {
  run_command_lines(1000, 1000);
}

}  // namespace
}  // namespace tessera
