// SPDX-License-Identifier: Apache-2.0
// Implements the command `flat_tokens build`: its flags, the choice of the tokenizer, messages.
#include <filesystem>
#include <thread>

#include <fmt/ostream.h>

#include "inputs/flat_tokens/token_build.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

enum class DocumentEnd { kAuto, kNone };
enum class Encoding { kUtf8, kAny };

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

struct Build {
  static constexpr std::string_view kName = "build", kUsage = "build --output=FILE PATH...";
  static constexpr std::string_view kAbout =
      "Builds a flat-tokens file. PATH is a file, a folder or a pattern ('c4/*.json.gz'): text, "
      "lines of JSON, Parquet, Arrow or TFRecord, plain or compressed (.gz, .zst, .xz, .bz2), or "
      "tokens (.bin of nanoGPT, llm.c and Megatron). If it is stopped or killed, the same command "
      "resumes.";

  std::filesystem::path output;
  std::optional<std::filesystem::path> tokenizer;
  std::string format{kAutoFormat};
  std::string text_field = ReadOptions{}.text_field;
  std::optional<std::string> tokens_field;
  std::string separator;
  DocumentEnd end_of_document = DocumentEnd::kAuto;
  std::optional<double> validation_fraction;
  std::optional<std::filesystem::path> validation;
  std::optional<int64_t> max_tokens;
  CorruptRecords broken = CorruptRecords::kFail;
  Encoding encoding = Encoding::kUtf8;
  int64_t max_document_bytes = ReadOptions{}.max_document_bytes;
  std::optional<int64_t> end_id;
  std::optional<int64_t> vocab_size;
  TokenDType token_dtype = TokenDType::kAuto;
  bool overwrite = false;
  std::optional<int64_t> threads;
  int64_t compression = 0;
  FIELDS(About(output, "the file", {.unit = "FILE"}),
         About(tokenizer, "bytes (default; byte b is token b + 1), or a tokenizer's file",
               {.unit = "FILE|URL"}),
         About(format,
               "of all PATHs: auto (by content and name), text, jsonl, parquet, arrow, "
               "tfrecord or bin"),
         About(text_field, "of records; a.b is the member b of a", {.unit = "NAME"}),
         About(tokens_field, "of records of TFRecord or JSON: a list of ids, instead of a text",
               {.unit = "NAME"}),
         About(separator, "separates documents in a text; without it, one document per file"),
         About(end_of_document, "auto: append the tokenizer's end token to documents"),
         About(validation_fraction,
               "size of the validation split (default: 0.1): the tail of one text, whole files of "
               "several texts, else documents, chosen by hash; if that is far from the fraction, "
               "the last tokens of all",
               {.min = 0, .max = 0.999999}),
         About(validation, "use these files as the validation split instead", {.unit = "FILE|URL"}),
         About(max_tokens, "limit of each split", {.min = 1, .max = int64_t{1} << 60}),
         About(broken, "corrupt records: fail, or skip and count"),
         About(encoding, "of text; any: accept any bytes"),
         About(max_document_bytes, "longer ones are corrupt", {.min = 1, .max = int64_t{1} << 40}),
         About(end_id,
               "of .bin and --tokens_field: the id that ends documents (default: the tokenizer's)",
               {.min = 0}),
         About(vocab_size, "of .bin and --tokens_field without --tokenizer",
               {.min = 1, .max = int64_t{1} << 31}),
         About(token_dtype, "of .bin without a header; auto: u16 up to 65536 ids"),
         About(overwrite, "replace an output made by another tokenizer"),
         About(threads, "default: all processors; does not change the output",
               {.min = 1, .max = 1024}),
         About(compression, "deflate level", {.min = 0, .max = 9}))

  void run(const Paths& paths, const Printed& printed) const {
    if (output.empty()) throw UsageError("build needs --output=FILE");
    if (paths.empty()) throw UsageError("build needs at least one PATH of text");
    TokenizerIdentity identity;
    const auto made = find_tokenizer(&identity);
    if (!overwrite) check_output(output, identity);
    TokenBuild build = request(made.get(), identity);
    build.from = find_inputs(paths, build, printed.notes);
    const Interruption signal;
    build.stop = signal.flag();
    BuildProgress progress(printed.notes, BuildProgress::detect(printed.notes));
    report(build, build_tokens(build, progress), printed.out);
  }

 private:
  // Returns null with --vocab_size, which only reads tokens.
  std::unique_ptr<Tokenizer> find_tokenizer(TokenizerIdentity* identity) const {
    if (!vocab_size) {
      auto made = make_tokenizer(tokenizer.value_or("bytes").string());
      *identity = identity_of(*made);
      return made;
    }
    if (tokenizer) throw UsageError("--tokenizer and --vocab_size exclude each other");
    *identity = unknown_tokenizer(*vocab_size);
    return nullptr;
  }

  TokenBuild request(const Tokenizer* made, const TokenizerIdentity& identity) const {
    if (validation && validation_fraction)
      throw UsageError("--validation and --validation_fraction exclude each other");
    TokenBuild build;
    build.output = output;
    build.tokenizer = made;
    build.identity = identity;
    build.read.text_field = tokens_field.value_or(text_field);
    build.read.as_ids = tokens_field.has_value();
    build.read.separator = separator;
    build.read.corrupt_records = broken;
    build.read.require_utf8 = encoding == Encoding::kUtf8;
    build.read.max_document_bytes = max_document_bytes;
    build.validation_fraction = validation_fraction.value_or(0.1);
    build.token_dtype = token_dtype;
    build.max_tokens = max_tokens.value_or(-1);
    build.compression = static_cast<int>(compression);
    build.threads = static_cast<int>(
        threads.value_or(std::max<int64_t>(1, std::thread::hardware_concurrency())));
    const bool has_ends = end_of_document == DocumentEnd::kAuto;
    if (has_ends && made != nullptr) build.document_end = made->end_id();
    build.end_of_tokens = build.document_end;
    if (!end_id) return build;
    if (!has_ends) throw UsageError("--end_id and --end_of_document=none exclude each other");
    if (*end_id >= identity.vocab_size)
      throw UsageError(fmt::format("--end_id={}: expected a whole number from 0 to {}", *end_id,
                                   identity.vocab_size - 1));
    build.end_of_tokens = static_cast<int32_t>(*end_id);
    if (tokens_field) build.document_end = build.end_of_tokens;
    return build;
  }

  BuildInputs find_inputs(const Paths& paths, const TokenBuild& build, std::ostream& notes) const {
    BuildInputOptions options;
    options.format = format;
    options.validation_fraction = build.validation_fraction;
    if (validation) options.validation = {validation->string()};
    options.texts_have_separator = !build.read.separator.empty();
    options.tokens_have_end_id = build.end_of_tokens.has_value();
    options.token_dtype = token_dtype;
    std::vector<std::string> places;
    for (const std::filesystem::path& path : paths) places.push_back(path.string());
    BuildInputs inputs = find_build_inputs(places, options);
    if (!inputs.left_out.empty()) fmt::print(notes, "{}\n", inputs.left_out);
    Paths files = {tokenizer.value_or("")};
    for (const BuildInput& input : inputs.inputs) files.push_back(input.path);
    check_not_an_input(build.output, files);
    for (const BuildInput& input : inputs.inputs) {
      const bool is_tokens = input.format == nullptr || tokens_field;
      if (is_tokens && !vocab_size && !tokenizer)
        throw UsageError(fmt::format(
            "{} holds tokens: give their tokenizer with --tokenizer=FILE, or --vocab_size=N",
            input.path.string()));
      if (!is_tokens && build.tokenizer == nullptr)
        throw UsageError(fmt::format("{} is text, which needs --tokenizer instead of --vocab_size",
                                     input.path.string()));
    }
    return inputs;
  }
};

}  // namespace

FlatTokensCommand build_command() { return flat_tokens_command<Build>(); }

}  // namespace tessera
