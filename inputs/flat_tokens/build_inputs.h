// SPDX-License-Identifier: Apache-2.0
// The inputs of a token file: the request (which files, how each is read, and which part becomes
// the validation split), and reading them as batches of documents.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/document_reader.h"
#include "inputs/readers/text_files.h"

namespace tessera {

// The value of BuildInputOptions::format for token files.
inline constexpr std::string_view kTokenFormat = "bin";

// The width of the ids in token files that do not state it. kAuto: 2 bytes if the vocabulary fits,
// else 4, and Error for a file that looks different.
enum class TokenDType { kAuto, kU16, kU32 };

// The part of an input that goes to the validation split.
enum class ValidationPart {
  kNone,
  kWhole,
  kByDocument,  // The documents chosen by in_validation_split.
  kTail,        // The end of a text or of a token sequence.
};

struct BuildInput {
  std::filesystem::path path;
  const DocumentFormat* format = nullptr;  // Null: a token file.
  ValidationPart validation_part = ValidationPart::kNone;
  int64_t bytes = 0;
  std::string name = "";  // TextFile::name.
};

struct BuildInputs {
  std::vector<BuildInput> inputs;  // In the order of the output.
  std::string files;               // Description of the files and their size.
  std::string validation_note;  // Description of the validation split: ", the last 10 % held out".
  bool splits_by_fraction = false;  // A fraction, rather than named files or nothing.
  std::string left_out;             // TextFiles::left_out.
  std::string fingerprint;          // Hash of names, sizes and modification times.
};

struct BuildInputOptions {
  // Format of all inputs: kTokenFormat or that of documents (document_format.h). kAutoFormat: *.bin
  // holds tokens, all others documents.
  std::string format = std::string(kAutoFormat);
  double validation_fraction = 0.1;
  std::vector<std::string> validation;  // Files for the split, instead of the fraction.
  bool texts_have_separator = false;    // Documents in texts end at a separator.
  bool tokens_have_end_id = false;      // Documents in token inputs end with an id.
  TokenDType token_dtype = TokenDType::kAuto;
};

// Finds inputs. `paths`: files, folders and patterns (find_text_files). Reads names, sizes, times
// and the first bytes.
BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options);
BuildInputs build_inputs_of(const TextFiles& found, const BuildInputOptions& options);

// The options of a build.
struct TokenBuild {
  BuildInputs from;
  std::filesystem::path output;
  const Tokenizer* tokenizer = nullptr;  // May be null if all inputs are tokens.
  TokenizerIdentity identity;            // Recorded in the file.
  std::optional<int32_t> document_end;   // Appended to each text.
  std::optional<int32_t> end_of_tokens;  // The id that ends documents of token inputs.
  TokenDType token_dtype = TokenDType::kAuto;
  ReadOptions read;
  double validation_fraction = 0.1;
  int64_t max_tokens = -1;  // Per split; -1: no limit.
  int compression = 0;      // Deflate level 1-9; 0: none.
  int threads = 1;

  // Granularity of work and of resuming; small in tests.
  int64_t unit_bytes = int64_t{64} << 20;  // Inputs are grouped into units of about this size.
  int64_t batch_bytes = int64_t{1} << 19;  // Text per batch.
  int64_t checkpoint_bytes = int64_t{256} << 20;  // Text between two lines of the journal.
  // Set by a signal handler: the build stops with an Error and can be resumed.
  const std::atomic<bool>* stop = nullptr;
};

enum Split { kTrain, kValidation, kNumSplits };
inline constexpr std::array<const char*, kNumSplits> kSplitNames = {"train", "validation"};
using SplitSet = std::array<bool, kNumSplits>;

// Documents of one split as ids, as in part files.
struct DocumentIds {
  // Marks a length that continues the previous document.
  static constexpr uint64_t kContinues = uint64_t{1} << 63;

  // Skips empty documents. `mark`: 0, or kContinues for more ids of the last document.
  void add(std::span<const int32_t> document, uint64_t mark = 0);
  void clear();  // Keeps the memory.

  std::vector<int32_t> ids;
  std::vector<uint64_t> lengths;
};

struct TextDocument {
  Split split = kTrain;
  std::string text;
  const BuildInput* input = nullptr;
  int64_t number = 0;  // Index in the input.
};

// A position in a unit (consecutive inputs).
struct UnitPosition {
  int64_t input = 0;
  ShardPosition within;
};

// Records that do not enter the output.
struct SkippedRecords {
  CorruptRecordCount corrupt;
  int64_t empty = 0;  // Documents without text.

  void add(const SkippedRecords& other) {
    corrupt.add(other.corrupt);
    empty += other.empty;
  }
};

struct DocumentBatch {
  void clear();  // Keeps the memory.

  std::vector<TextDocument> texts;
  std::array<DocumentIds, kNumSplits> tokens;
  CorruptRecordCount untokenised;  // Texts that the tokenizer cannot split.
  int64_t bytes = 0;               // Bytes of text and tokens.
  // State after this batch, from the beginning of the unit.
  UnitPosition end;
  SkippedRecords skipped;
  int64_t bytes_on_disk = 0;
};

// Reads one input document by document and assigns documents to splits.
class InputReader {
 public:
  virtual ~InputReader() = default;
  // Adds a document, or some tokens, if its split is wanted; false at the end.
  virtual bool read(const SplitSet& wanted, DocumentBatch* batch) = 0;
  virtual ShardPosition position() const = 0;
  virtual void seek(const ShardPosition& position) = 0;
  virtual SkippedRecords skipped() const = 0;
  virtual int64_t bytes_read() const = 0;
};

std::unique_ptr<InputReader> open_input(const BuildInput& input, const TokenBuild& build);
// Whether the documents of a token file are those of Megatron's index (.idx) beside it. An explicit
// type of the ids reads the file without it.
bool has_megatron_index(const std::filesystem::path& tokens, TokenDType dtype);
// Reads token files of nanoGPT, llm.c and Megatron; `source` has `input.bytes` bytes.
std::unique_ptr<InputReader> read_token_bin(std::unique_ptr<ByteSource> source,
                                            const BuildInput& input, const TokenBuild& build);

// Reads a unit (consecutive inputs) batch by batch, and can resume after any batch.
class UnitSource {
 public:
  UnitSource(std::span<const BuildInput> inputs, const TokenBuild& build)
      : inputs_(inputs), build_(build) {}

  // Fills an empty batch with documents of the wanted splits. False at the end.
  bool next(const SplitSet& wanted, DocumentBatch* batch);
  // Moves to the end of a batch.
  void seek(const UnitPosition& position, const SkippedRecords& skipped);

 private:
  void close();

  std::span<const BuildInput> inputs_;
  const TokenBuild& build_;
  int64_t at_ = 0;                       // Index of the current input.
  ShardPosition from_;                   // Position at which to open it.
  int64_t bytes_before_ = 0;             // Bytes on disk of finished inputs.
  SkippedRecords skipped_before_;        // Records skipped before the reader was opened.
  std::unique_ptr<InputReader> reader_;  // Reader of the current input; opened on demand.
};

}  // namespace tessera
