// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/document_reader.h"

#include "core/base/error.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/foreign_format.h"

namespace tessera {

void skip_or_fail(CorruptRecords corrupt_records, const std::string& fault,
                  CorruptRecordCount* count) {
  if (corrupt_records == CorruptRecords::kFail)
    fail("{} (broken=skip skips and counts corrupt records)", fault);
  count->add({1, fault});
}

std::unique_ptr<DocumentReader> read_documents(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path,
                                               const ReadOptions& options,
                                               std::string_view format) {
  source = decompress_by_name(std::move(source), path);
  const std::string head = head_of(*source);
  const DocumentFormat& by_file = format_of_file(path, head);
  if (by_file.magics.empty())
    if (const auto foreign = foreign_format(head))
      fail("{}: {}", path.string(), describe(*foreign, path));
  return (format == kAutoFormat ? by_file : named_format(format)).open(std::move(source), options);
}

std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options,
                                               std::string_view format) {
  return read_documents(open_file(path), path, options, format);
}

}  // namespace tessera
