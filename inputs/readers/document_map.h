// SPDX-License-Identifier: Apache-2.0
// What an input does with each document before it is tokenised: it changes or drops it. A class of
// one's own is a template in the HParams of an input.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/hparams/template.h"

namespace tessera {

class BaseDocumentMap {
 public:
  virtual ~BaseDocumentMap() = default;
  // Returns the text to use; nullopt drops the document. It depends on the document alone, so that
  // a run resumes exactly. Several threads call it.
  virtual std::optional<std::string> map(std::string document) const = 0;
};

// Returns null if the template is unset.
inline std::shared_ptr<const BaseDocumentMap> make_document_map(
    const Template<BaseDocumentMap>& document_map_tpl) {
  return document_map_tpl.has() ? document_map_tpl.instantiate() : nullptr;
}

}  // namespace tessera
