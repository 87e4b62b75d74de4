// SPDX-License-Identifier: Apache-2.0
// flat_tokens build.
#include <filesystem>
#include <thread>

#include <fmt/ostream.h>

#include "inputs/flat_tokens/token_build.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kBuildUsage =
    R"(  flat_tokens build --output=FILE [options] PATH...
      Builds a flat-tokens file. PATH is a file, a folder or a pattern ('c4/*.json.gz'): text or
      lines of JSON (.jsonl, .json), plain or compressed (.gz, .zst), or tokens (.bin of nanoGPT,
      llm.c and Megatron). If it is stopped or killed, the same command resumes.
      --tokenizer=bytes           bytes (byte b is token b + 1), or a tokenizer's file
      --format=auto               of all PATHs: auto (by name), text, jsonl or bin
      --text_field=text           of lines of JSON
      --separator=TEXT            separates documents in a text; default: one document per file
      --end_of_document=auto      append the tokenizer's end token to documents: auto or none
      --validation_fraction=0.1   size of the validation split: the tail of one text, whole files
                                  of several texts, else documents, chosen by hash; if that is
                                  far from the fraction, the last tokens of all
      --validation=PATH           use these files as the validation split instead
      --max_tokens=N              limit of each split
      --broken=fail               corrupt records: fail, or skip and count
      --encoding=utf8             of text: utf8, or any (accept any bytes)
      --max_document_bytes=N      longer ones are corrupt; default 1073741824
      --end_id=N                  of .bin: the id that ends documents; default: the tokenizer's
      --vocab_size=N              of .bin without --tokenizer
      --token_dtype=auto          of .bin without a header: u16, u32, or auto: u16 up to 65536 ids
      --overwrite                 replace an output made by another tokenizer
      --threads=N                 default: all processors; does not change the output
      --compression=0             deflate level, 0 to 9
)";

const std::vector<std::string> kFlags = {
    "output",          "tokenizer",           "format", "text_field", "separator",
    "end_of_document", "validation",          "broken", "max_tokens", "max_document_bytes",
    "encoding",        "validation_fraction", "end_id", "threads",    "vocab_size",
    "compression",     "token_dtype"};

constexpr int64_t kMost = int64_t{1} << 60;
constexpr int64_t kMostBuiltIds = int64_t{1} << 31;

ReadOptions read_options(const Arguments& arguments) {
  ReadOptions read;
  read.text_field = arguments.text("text_field", read.text_field);
  read.separator = arguments.text("separator", "");
  read.corrupt_records = arguments.choice("broken", {"fail", "skip"}) == 0 ? CorruptRecords::kFail
                                                                           : CorruptRecords::kSkip;
  read.require_utf8 = arguments.choice("encoding", {"utf8", "any"}) == 0;
  read.max_document_bytes =
      arguments.number<int64_t>("max_document_bytes", read.max_document_bytes, 1, int64_t{1} << 40);
  return read;
}

// Null with --vocab_size, which only reads tokens.
std::unique_ptr<Tokenizer> find_tokenizer(const Arguments& arguments, TokenizerIdentity* identity) {
  if (!arguments.has("vocab_size")) {
    auto tokenizer = make_tokenizer(arguments.text("tokenizer", "bytes"));
    *identity = identity_of(*tokenizer);
    return tokenizer;
  }
  if (arguments.has("tokenizer"))
    throw UsageError("--tokenizer and --vocab_size exclude each other");
  *identity = unknown_tokenizer(arguments.number<int64_t>("vocab_size", 0, 1, kMostBuiltIds));
  return nullptr;
}

BuildInputs find_inputs(const Arguments& arguments, const TokenBuild& build, std::ostream& notes) {
  BuildInputOptions options;
  if (const size_t format = arguments.choice("format", {"auto", "text", "jsonl", "bin"}))
    options.format = static_cast<SourceKind>(format - 1);
  options.validation_fraction = build.validation_fraction;
  if (arguments.has("validation")) options.validation = {arguments.text("validation", "")};
  options.texts_have_separator = !build.read.separator.empty();
  options.tokens_have_end_id = build.end_of_tokens.has_value();
  BuildInputs inputs = find_build_inputs(arguments.paths, options);
  if (!inputs.left_out.empty()) fmt::print(notes, "{}\n", inputs.left_out);
  std::vector<std::filesystem::path> files = {arguments.text("tokenizer", "")};
  for (const BuildInput& input : inputs.inputs) files.push_back(input.path);
  check_not_an_input(build.output, files);
  for (const BuildInput& input : inputs.inputs) {
    const bool is_tokens = input.kind == SourceKind::kTokens;
    if (is_tokens && !arguments.has("vocab_size") && !arguments.has("tokenizer"))
      throw UsageError(fmt::format(
          "{} holds tokens: give their tokenizer with --tokenizer=FILE, or --vocab_size=N",
          input.path.string()));
    if (!is_tokens && build.tokenizer == nullptr)
      throw UsageError(fmt::format("{} is text, which needs --tokenizer instead of --vocab_size",
                                   input.path.string()));
  }
  return inputs;
}

TokenBuild request_of(const Arguments& arguments, const Tokenizer* tokenizer,
                      const TokenizerIdentity& identity, std::ostream& notes) {
  TokenBuild build;
  build.output = arguments.text("output", "");
  build.tokenizer = tokenizer;
  build.identity = identity;
  build.read = read_options(arguments);
  if (arguments.has("validation") && arguments.has("validation_fraction"))
    throw UsageError("--validation and --validation_fraction exclude each other");
  build.validation_fraction = arguments.number<double>("validation_fraction", 0.1, 0.0, 0.999999);
  build.token_dtype =
      static_cast<TokenDType>(arguments.choice("token_dtype", {"auto", "u16", "u32"}));
  build.max_tokens = arguments.number<int64_t>("max_tokens", -1, 1, kMost);
  build.compression = arguments.number<int>("compression", 0, 0, 9);
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  build.threads = arguments.number<int>("threads", processors, 1, 1024);
  const bool has_ends = arguments.choice("end_of_document", {"auto", "none"}) == 0;
  if (has_ends && tokenizer != nullptr) build.document_end = tokenizer->end_id();
  build.end_of_tokens = build.document_end;
  if (arguments.has("end_id")) {
    if (!has_ends) throw UsageError("--end_id and --end_of_document=none exclude each other");
    build.end_of_tokens =
        arguments.number<int32_t>("end_id", 0, 0, static_cast<int32_t>(identity.vocab_size - 1));
  }
  build.from = find_inputs(arguments, build, notes);
  return build;
}

std::string ends_text(const TokenBuild& build) {
  const std::optional<int32_t>& id = build.end_of_tokens;
  if (!id) {
    const bool has_end = build.tokenizer != nullptr && build.tokenizer->end_id();
    return fmt::format("no id ends documents{}",
                       has_end ? " (--end_of_document=none)" : ": the tokenizer has no end token");
  }
  std::string text = fmt::format("id {} ends documents", *id);
  if (build.tokenizer == nullptr) return text;
  for (const std::string& name : build.tokenizer->special_tokens())
    if (build.tokenizer->id_of(name) == id) text += fmt::format(": '{}'", name);
  return text;
}

void report(const TokenBuild& build, const TokenBuilt& built, std::ostream& out) {
  fmt::print(out, "{}: {} training and {} validation tokens of {}\n", build.output.string(),
             built.tokens[kTrain], built.tokens[kValidation], built.description);
  fmt::print(out, "  documents: {} for training, {} for validation", built.documents[kTrain],
             built.documents[kValidation]);
  if (built.skipped.empty > 0) fmt::print(out, "; skipped: {} empty", built.skipped.empty);
  fmt::print(out, "\n  {}\n", ends_text(build));
  const CorruptRecordCount& corrupt = built.skipped.corrupt;
  if (corrupt.count > 0)
    fmt::print(out, "  skipped: {} corrupt records; the first: {}\n", corrupt.count, corrupt.first);
}

void run_build(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes) {
  const Arguments arguments = parse_arguments(words, kFlags, {"overwrite"});
  if (!arguments.has("output") || arguments.text("output", "").empty())
    throw UsageError("build needs --output=FILE");
  if (arguments.paths.empty()) throw UsageError("build needs at least one PATH of text");
  TokenizerIdentity identity;
  const auto tokenizer = find_tokenizer(arguments, &identity);
  check_output(arguments, identity);
  TokenBuild build = request_of(arguments, tokenizer.get(), identity, notes);
  const Interruption signal;
  build.stop = signal.flag();
  BuildProgress progress(notes, BuildProgress::detect(notes));
  report(build, build_tokens(build, progress), out);
}

}  // namespace

Command build_command() { return {"build", std::string(kBuildUsage), run_build}; }

}  // namespace tessera
