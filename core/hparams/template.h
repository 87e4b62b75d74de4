// SPDX-License-Identifier: Apache-2.0
// Template<Base>: the HParams of some class derived from Base, held by value (Pax:
// sub_config_field). It copies deeply, compares by value and instantiates the class.
//
//   Template<UnaryLayer> activation_tpl = SiLU::HParams{};
//   p.ffn_tpl.as<FeedForward::HParams>().hidden_dims = 512;
//   std::unique_ptr<UnaryLayer> ffn = p.ffn_tpl.instantiate();
#pragma once

#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/base/plugin_call.h"
#include "core/hparams/convert.h"

namespace tessera {

// The HParams of a class, type-erased.
class TemplateHolder {
 public:
  virtual ~TemplateHolder() = default;
  virtual std::unique_ptr<TemplateHolder> clone() const = 0;
  virtual std::string_view name() const = 0;
  virtual const std::type_info& type() const = 0;  // Type of the HParams.
  virtual Tree to_tree() const = 0;
  virtual void read(const TreeReader& reader) = 0;
  virtual void* hparams() = 0;
};

using TemplateFactory = std::unique_ptr<TemplateHolder> (*)();

void register_template(const std::type_info& base, std::string_view name,
                       const std::type_info& hparams, TemplateFactory factory);
// Returns one message for each name registered twice.
std::vector<std::string> template_clashes();
// Checks that every template in the tree holds a class with a TemplateRegistrar; Error otherwise:
// the configuration could be written but not read back.
void check_registered(const Tree& tree);
// Returns the names registered for this base class, sorted.
std::vector<std::string> template_names(const std::type_info& base);

// The parts of Template<Base> that do not depend on Base. A null holder is an unset template.
void* held_as(TemplateHolder* holder, const std::type_info& wanted, std::string_view wanted_name);
std::unique_ptr<TemplateHolder> ready_to_construct(const TemplateHolder* holder,
                                                   const std::type_info& base);
Tree holder_tree(const TemplateHolder* holder, const std::type_info& base,
                 const Provenance& provenance);
std::unique_ptr<TemplateHolder> read_holder(const TreeReader& reader, const TemplateHolder* current,
                                            const std::type_info& base);

// The HParams of a class that derives from Base. Other requirements are checked on use, with
// messages that name what is missing (fields_check.h).
template <typename P, typename Base>
concept Configures = std::derived_from<typename P::Instance, Base>;

// HolderOf contains all code that reads, writes and copies an HParams, so each class of the library
// instantiates it once: its header ends with
//
//   extern template class HolderOf<UnaryLayer, RmsNorm::HParams>;
//
// and its .cc has REGISTER_TEMPLATE, or the same line without `extern`. Without these lines every
// file that puts the HParams into a Template compiles it again.
template <typename Base>
class HolderFor : public TemplateHolder {
 public:
  virtual std::unique_ptr<Base> construct() const = 0;
};

template <typename Base, typename P>
class HolderOf final : public HolderFor<Base> {
 public:
  // Members are defined outside the class: inline members would be compiled everywhere.
  explicit HolderOf(P&& hparams);
  ~HolderOf() override;

  std::unique_ptr<TemplateHolder> clone() const override;
  std::string_view name() const override;
  const std::type_info& type() const override;
  Tree to_tree() const override;
  void read(const TreeReader& reader) override;
  void* hparams() override;
  std::unique_ptr<Base> construct() const override;

  static std::unique_ptr<TemplateHolder> make(P&& hparams);

 private:
  P hparams_;
};

template <typename Base, typename P>
HolderOf<Base, P>::HolderOf(P&& hparams) : hparams_(std::move(hparams)) {}

template <typename Base, typename P>
HolderOf<Base, P>::~HolderOf() = default;

template <typename Base, typename P>
std::unique_ptr<TemplateHolder> HolderOf<Base, P>::clone() const {
  return make(P(hparams_));
}

template <typename Base, typename P>
std::string_view HolderOf<Base, P>::name() const {
  return class_name<P>();
}

template <typename Base, typename P>
const std::type_info& HolderOf<Base, P>::type() const {
  return typeid(P);
}

template <typename Base, typename P>
Tree HolderOf<Base, P>::to_tree() const {
  return tessera::to_tree(hparams_);
}

template <typename Base, typename P>
void HolderOf<Base, P>::read(const TreeReader& reader) {
  from_tree(reader, hparams_);
}

template <typename Base, typename P>
void* HolderOf<Base, P>::hparams() {
  return &hparams_;
}

template <typename Base, typename P>
std::unique_ptr<Base> HolderOf<Base, P>::construct() const {
  using Instance = typename P::Instance;
  return calling_class(typeid(Instance), "", [&] { return std::make_unique<Instance>(hparams_); });
}

template <typename Base, typename P>
std::unique_ptr<TemplateHolder> HolderOf<Base, P>::make(P&& hparams) {
  return std::make_unique<HolderOf>(std::move(hparams));
}

template <typename Base>
class Template {
 public:
  Template() = default;  // Unset.
  template <typename P>
  requires Configures<P, Base> Template(
      P hparams, std::source_location where = std::source_location::current())
      : holder_(HolderOf<Base, P>::make(std::move(hparams))),
        provenance_{Origin::kExperiment, SourceSite::current(where), {}} {
    detail::check_fields<P>();
  }

  Template(const Template& other)
      : holder_(other.holder_ ? other.holder_->clone() : nullptr),
        provenance_(other.provenance_),
        is_complete_(other.is_complete_) {}
  Template(Template&&) noexcept = default;
  Template& operator=(const Template& other) { return *this = Template(other); }
  Template& operator=(Template&&) noexcept = default;

  bool has() const { return holder_ != nullptr; }
  std::string_view name() const { return holder_ ? holder_->name() : ""; }

  template <typename P>
  bool holds() const {
    return holder_ && holder_->type() == typeid(P);
  }
  // Returns the HParams; Error if they are of another class.
  template <typename P>
  P& as() {
    is_complete_ = false;
    return *static_cast<P*>(held_as(holder_.get(), typeid(P), class_name<P>()));
  }
  template <typename P>
  const P& as() const {
    return *static_cast<const P*>(held_as(holder_.get(), typeid(P), class_name<P>()));
  }

  // Constructs the object after unset Fields have inherited values within these HParams. Error that
  // lists all required fields that are still unset. Templates within them are then complete: a
  // layer constructs its children, each of many equal ones, without looking for values again.
  std::unique_ptr<Base> instantiate() const {
    if (holder_ && is_complete_) return static_cast<const HolderFor<Base>&>(*holder_).construct();
    const std::unique_ptr<TemplateHolder> ready = ready_to_construct(holder_.get(), typeid(Base));
    return static_cast<const HolderFor<Base>&>(*ready).construct();
  }

  Tree to_tree() const { return holder_tree(holder_.get(), typeid(Base), provenance_); }
  void read(const TreeReader& reader) {
    holder_ = read_holder(reader, holder_.get(), typeid(Base));
    provenance_ = reader.tree.provenance;
    is_complete_ = reader.tree.is_complete;
  }
  bool operator==(const Template& other) const { return same_value(to_tree(), other.to_tree()); }

 private:
  std::unique_ptr<TemplateHolder> holder_;
  Provenance provenance_;
  bool is_complete_ = false;  // Its Fields have inherited what they can, and none is missing.
};

// A name as a template argument, for a class template of which each instance has a kName.
template <size_t size>
struct TemplateName {
  // NOLINTNEXTLINE(google-explicit-constructor): "ReLU" is to convert.
  constexpr TemplateName(const char (&name)[size]) {
    for (size_t i = 0; i < size; ++i) text[i] = name[i];
  }
  char text[size] = {};
};

// Registers L by its name for reading Template<Base>: `const TemplateRegistrar<Base, L>
// kRegister;` in L's .cc. Names registered twice are reported by template_clashes().
template <typename Base, typename L>
class TemplateRegistrar {
 public:
  TemplateRegistrar() {
    using P = typename L::HParams;
    if constexpr (!Configures<P, Base>) {
      Instance_is_missing_or_not_derived_from_Base<P, Base>();
    } else if constexpr (std::is_abstract_v<L>) {
      Instance_is_abstract<P>();
    } else if constexpr (detail::is_in_anonymous_namespace<P>()) {
      HParams_are_in_an_anonymous_namespace<P>();
    } else {
      detail::check_fields<P>();
      register_template(
          typeid(Base), class_name<P>(), typeid(P),
          []() -> std::unique_ptr<TemplateHolder> { return HolderOf<Base, P>::make(P{}); });
    }
  }
};

// In the .cc of a class of namespace tessera: registers it and compiles the HolderOf that its
// header declares extern. In other namespaces: const tessera::TemplateRegistrar<Base, Class>
// kRegister;
#define REGISTER_TEMPLATE(Base, Class)                              \
  template class ::tessera::HolderOf<Base, Class::HParams>;         \
  namespace {                                                       \
  const ::tessera::TemplateRegistrar<Base, Class> kRegister##Class; \
  }                                                                 \
  static_assert(true)

}  // namespace tessera
