// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/mup.h"

#include <cmath>

#include "core/base/error.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/attention/latent_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/models/language_model.h"
#include "layers/widths.h"

namespace tessera {
namespace {

class MupCheck {
 public:
  MupCheck(const std::map<std::string, int64_t>& base, const std::map<std::string, double>& ratios)
      : base_(base), ratios_(ratios) {}

  void check(const Tree& tree, const std::string& path) const {
    const auto is = [&](const std::type_info& hparams) {
      return tree.hparams != nullptr && *tree.hparams == hparams;
    };
    if (is(typeid(SharedEmbeddingSoftmax::HParams))) {
      check_table(tree, path);
      check_logits(tree, path);
    }
    if (is(typeid(Embedding::HParams))) check_table(tree, path);
    if (is(typeid(DotProductAttention::HParams))) check_queries(tree, path, 0);
    if (is(typeid(LatentAttention::HParams)))
      check_queries(tree, path, tree.find("rope_dims")->integer);
    for (size_t i = 0; i < tree.items.size(); ++i) check(tree.items[i], tree.item_path(path, i));
  }

 private:
  double ratio(const std::string& axis) const {
    const auto found = ratios_.find(axis);
    return found == ratios_.end() ? 1.0 : found->second;
  }

  void check_logits(const Tree& tree, const std::string& path) const {
    if (ratio("embed") == 1.0 || tree.find("loss")->find("multiplier")->number != 1.0) return;
    fail(
        "mup_base: the embedding is {} times as wide as in the base model, and its table also "
        "gives the logits, which muP multiplies by the inverse; set {}.loss.multiplier={}",
        ratio("embed"), path, double_text(1.0 / ratio("embed")));
  }

  void check_table(const Tree& tree, const std::string& path) const {
    if (ratio("embed") == 1.0 || !tree.find("scale_sqrt_depth")->boolean ||
        tree.find("multiplier")->number != 1.0)
      return;
    fail(
        "mup_base: the embedding is {} times as wide as in the base model, and scale_sqrt_depth "
        "multiplies its rows by √model_dims; set {}.multiplier={}",
        ratio("embed"), path, double_text(1.0 / std::sqrt(ratio("embed"))));
  }

  // As wide as in the base model, the standard scale; from there on it is divided by the ratio.
  void check_queries(const Tree& tree, const std::string& path, int64_t rope_dims) const {
    if (ratio("head_dim") == 1.0 || tree.find("query_scale")->is_set()) return;
    const Tree* const learned = tree.find("use_per_dim_scale");
    const auto dims = static_cast<double>(base_.at("head_dim") + rope_dims);
    fail(
        "mup_base: heads are {} times as wide as in the base model, so muP divides products of "
        "queries and keys by the width, not by its root; set {}{}.query_scale={}",
        ratio("head_dim"),
        learned != nullptr && learned->boolean ? path + ".use_per_dim_scale=false and " : "", path,
        double_text(1.0 / std::sqrt(dims) / ratio("head_dim")));
  }

  const std::map<std::string, int64_t>& base_;
  const std::map<std::string, double>& ratios_;
};

// No more at any width than at the base's.
template <typename P>
void use_mup_of_table(P& p, double ratio) {
  if (p.scale_sqrt_depth) p.multiplier /= std::sqrt(ratio);
}

}  // namespace

void check_mup(const Template<BaseModel>& model, const std::map<std::string, int64_t>& base,
               const std::map<std::string, double>& ratios) {
  MupCheck(base, ratios).check(resolved(model.to_tree()), "task.model");
}

int64_t at_width(std::string_view knob, int64_t size, int64_t model_dims, int64_t base_dims) {
  if (base_dims == 0) return size;
  if (size * model_dims % base_dims != 0)
    fail(
        "{}={} of a model of mup_base_dims={} is no whole number at model_dims={}; change one of "
        "them, by factors such as 2",
        knob, size, base_dims, model_dims);
  return size * model_dims / base_dims;
}

void use_mup(SingleTask::HParams& task, int64_t model_dims, int64_t base_dims) {
  if (base_dims == 0) return;
  const std::map<std::string, int64_t> sizes = axis_sizes(task.model.instantiate()->parameters());
  for (const std::string axis : {"embed", "mlp", "heads", "kv_heads"})
    if (const auto size = sizes.find(axis); size != sizes.end())
      task.mup_base[axis] = at_width(axis, size->second, base_dims, model_dims);
  const double ratio = static_cast<double>(model_dims) / static_cast<double>(base_dims);
  auto& lm = task.model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  if (lm.separate_embedding_tpl.has())
    use_mup_of_table(lm.separate_embedding_tpl.as<Embedding::HParams>(), ratio);
  if (!lm.softmax_tpl.holds<SharedEmbeddingSoftmax::HParams>()) return;
  auto& table = lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
  use_mup_of_table(table, ratio);
  table.loss.multiplier /= ratio;
}

}  // namespace tessera
