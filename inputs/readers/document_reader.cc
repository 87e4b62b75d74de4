// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/document_reader.h"

#include "core/base/error.h"

namespace tessera {

void skip_or_fail(CorruptRecords corrupt_records, const std::string& fault, std::string_view reason,
                  CorruptRecordCount* count) {
  if (corrupt_records == CorruptRecords::kFail)
    fail("{} (broken=skip skips and counts corrupt records)", fault);
  count->add({1, fault, {{std::string(reason), 1}}});
}

}  // namespace tessera
