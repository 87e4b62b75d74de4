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

// The HParams of a class that derives from Base.
template <typename P, typename Base>
concept Configures = HasFields<P> && requires {
  typename P::Instance;
} && std::derived_from<typename P::Instance, Base>;

namespace detail {

template <typename Base>
class HolderFor : public TemplateHolder {
 public:
  virtual std::unique_ptr<Base> construct() const = 0;
};

template <typename Base, typename P>
class HolderOf final : public HolderFor<Base> {
 public:
  explicit HolderOf(P hparams) : hparams_(std::move(hparams)) {}

  std::unique_ptr<TemplateHolder> clone() const override {
    return std::make_unique<HolderOf>(hparams_);
  }
  std::string_view name() const override { return P::kName; }
  const std::type_info& type() const override { return typeid(P); }
  Tree to_tree() const override { return tessera::to_tree(hparams_); }
  void read(const TreeReader& reader) override { from_tree(reader, hparams_); }
  void* hparams() override { return &hparams_; }
  std::unique_ptr<Base> construct() const override {
    return std::make_unique<typename P::Instance>(hparams_);
  }

 private:
  P hparams_;
};

}  // namespace detail

template <typename Base>
class Template {
 public:
  Template() = default;  // Unset.
  template <typename P>
  requires Configures<P, Base> Template(
      P hparams, std::source_location where = std::source_location::current())
      : holder_(std::make_unique<detail::HolderOf<Base, P>>(std::move(hparams))),
        provenance_{Origin::kExperiment, SourceSite::current(where), {}} {}

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
    return static_cast<const detail::HolderFor<Base>&>(*ready).construct();
  }

  Tree to_tree() const { return holder_tree(holder_.get(), provenance_); }
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
    static_assert(Configures<P, Base>, "L::HParams needs Instance = L, kName and FIELDS");
    register_template(typeid(Base), P::kName, typeid(P), []() -> std::unique_ptr<TemplateHolder> {
      return std::make_unique<detail::HolderOf<Base, P>>(P{});
    });
  }
};

}  // namespace tessera
