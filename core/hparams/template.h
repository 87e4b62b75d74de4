// SPDX-License-Identifier: Apache-2.0
// Template<Base>: the configuration of *some* class that derives from Base, held by value. It
// copies deeply, compares by value, and makes the object: configuration nests by Template members.
//
//   Template<UnaryLayer> activation_tpl = SiLU::HParams{};
//   p.ffn_tpl.as<FeedForward::HParams>().hidden_dims = 512;
//   std::unique_ptr<UnaryLayer> ffn = p.ffn_tpl.instantiate();
#pragma once

#include <concepts>
#include <memory>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "core/hparams/convert.h"
#include "core/hparams/template_holder.h"

namespace tessera {

// The HParams of a class that derives from Base. What else they need is checked where they are
// used, for messages that name what is missing (fields_check.h).
template <typename P, typename Base>
concept Configures = std::derived_from<typename P::Instance, Base>;

// What a Template<Base> holds. All that reads, writes and copies an HParams is generated with it,
// so a class of the library has it compiled once: its header ends with
//
//   extern template class HolderOf<UnaryLayer, RmsNorm::HParams>;
//
// and its .cc has the same line without `extern`. Without the two lines it is compiled in each file
// that puts these HParams into a Template, which is slower but works.
template <typename Base>
class HolderFor : public TemplateHolder {
 public:
  virtual std::unique_ptr<Base> construct() const = 0;
};

template <typename Base, typename P>
class HolderOf final : public HolderFor<Base> {
 public:
  // Members are defined outside the class: what is inline would be compiled everywhere.
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
  return P::kName;
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
  return std::make_unique<typename P::Instance>(hparams_);
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
    if constexpr (!requires { P::kName; }) kName_is_missing<P>();
    detail::check_fields<P>();
  }

  Template(const Template& other)
      : holder_(other.holder_ ? other.holder_->clone() : nullptr), provenance_(other.provenance_) {}
  Template(Template&&) noexcept = default;
  Template& operator=(const Template& other) { return *this = Template(other); }
  Template& operator=(Template&&) noexcept = default;

  bool has() const { return holder_ != nullptr; }
  std::string_view name() const { return holder_ ? holder_->name() : ""; }

  template <typename P>
  bool holds() const {
    return holder_ && holder_->type() == typeid(P);
  }
  // The HParams held; Error if they are another class's.
  template <typename P>
  P& as() {
    return *static_cast<P*>(held_as(holder_.get(), typeid(P), class_name<P>()));
  }
  template <typename P>
  const P& as() const {
    return *static_cast<const P*>(held_as(holder_.get(), typeid(P), class_name<P>()));
  }

  // Makes the object, after filling unset Fields from the enclosing HParams. Error that lists all
  // required fields that are still unset.
  std::unique_ptr<Base> instantiate() const {
    const std::unique_ptr<TemplateHolder> ready = ready_to_construct(holder_.get(), typeid(Base));
    return static_cast<const HolderFor<Base>&>(*ready).construct();
  }

  Tree to_tree() const { return holder_tree(holder_.get(), typeid(Base), provenance_); }
  void read(const TreeReader& reader) {
    holder_ = read_holder(reader, holder_.get(), typeid(Base));
    provenance_ = reader.tree.provenance;
  }
  bool operator==(const Template& other) const { return same_value(to_tree(), other.to_tree()); }

 private:
  std::unique_ptr<TemplateHolder> holder_;
  Provenance provenance_;
};

// Makes L known by its name wherever a Template<Base> is read: `const TemplateRegistrar<Base, L>
// kRegister;` in L's .cc. It only records; a name taken twice is in `template_clashes()`.
template <typename Base, typename L>
class TemplateRegistrar {
 public:
  TemplateRegistrar() {
    using P = typename L::HParams;
    if constexpr (!requires { P::kName; }) {
      kName_is_missing<P>();
    } else if constexpr (!Configures<P, Base>) {
      Instance_is_missing_or_not_derived_from_Base<P, Base>();
    } else if constexpr (std::is_abstract_v<L>) {
      Instance_is_abstract<P>();
    } else if constexpr (detail::is_in_anonymous_namespace<P>()) {
      HParams_are_in_an_anonymous_namespace<P>();
    } else {
      detail::check_fields<P>();
      register_template(typeid(Base), P::kName, typeid(P), []() -> std::unique_ptr<TemplateHolder> {
        return HolderOf<Base, P>::make(P{});
      });
    }
  }
};

}  // namespace tessera
