// SPDX-License-Identifier: Apache-2.0
// What Template<Base> does that does not depend on Base: reading, making ready, the registry.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "core/hparams/tree.h"
#include "core/hparams/tree_reader.h"

namespace tessera {

class TemplateHolder {
 public:
  virtual ~TemplateHolder() = default;
  virtual std::unique_ptr<TemplateHolder> clone() const = 0;
  virtual std::string_view name() const = 0;
  virtual const std::type_info& type() const = 0;  // Of the HParams.
  virtual Tree to_tree() const = 0;
  virtual void read(const TreeReader& reader) = 0;
  virtual void* hparams() = 0;
};

using TemplateFactory = std::unique_ptr<TemplateHolder> (*)();

void register_template(const std::type_info& base, std::string_view name,
                       const std::type_info& hparams, TemplateFactory factory);
// "two classes are registered as UnaryLayer 'Linear'", for each name taken twice.
std::vector<std::string> template_clashes();
// Error for a template that holds a class which no TemplateRegistrar has made known: such a
// configuration could be written, but not read back.
void check_registered(const Tree& tree);
// Names that a Template of this base can be read from, sorted.
std::vector<std::string> template_names(const std::type_info& base);

// For Template<Base>; a null holder is an unset template.
void* held_as(TemplateHolder* holder, const std::type_info& wanted, std::string_view wanted_name);
std::unique_ptr<TemplateHolder> ready_to_construct(const TemplateHolder* holder,
                                                   const std::type_info& base);
Tree holder_tree(const TemplateHolder* holder, const std::type_info& base,
                 const Provenance& provenance);
std::unique_ptr<TemplateHolder> read_holder(const TreeReader& reader, const TemplateHolder* current,
                                            const std::type_info& base);

}  // namespace tessera
