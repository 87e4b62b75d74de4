// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/mup.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/base/error.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/attention/latent_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/models/language_model.h"

namespace tessera {
namespace {

struct MupCheck {
  const std::map<std::string, int64_t>& base;
  const std::map<std::string, double>& widths;

  double ratio(const std::string& axis) const {
    return widths.contains(axis) ? widths.at(axis) : 1.0;
  }

  void check(const Tree& p, const std::string& path) const {
    const auto is = [&](const std::type_info& hparams) {
      return p.hparams != nullptr && *p.hparams == hparams;
    };
    const auto refuse = [&](const std::string& axis, std::string_view field, double value) {
      fail("mup_base: {} is {} times as large as in the base model; set {}.{}={}", axis,
           ratio(axis), path, field, double_text(value));
    };
    const bool tied = is(typeid(SharedEmbeddingSoftmax::HParams));
    const bool latent = is(typeid(LatentAttention::HParams));
    const double embed = ratio("embed"), head_dim = ratio("head_dim");
    if (tied && embed != 1.0 && p.find("loss")->find("multiplier")->number == 1.0)
      refuse("embed", "loss.multiplier", 1.0 / embed);
    if ((tied || is(typeid(Embedding::HParams))) && embed != 1.0 &&
        p.find("scale_sqrt_depth")->boolean && p.find("multiplier")->number == 1.0)
      refuse("embed", "multiplier", 1.0 / std::sqrt(embed));
    if ((latent || is(typeid(DotProductAttention::HParams))) && head_dim != 1.0 &&
        !p.find("query_scale")->is_set()) {
      const int64_t dims = base.at("head_dim") + (latent ? p.find("rope_dims")->integer : 0);
      refuse("head_dim",
             !latent && p.find("use_per_dim_scale")->boolean
                 ? "use_per_dim_scale=false, and then query_scale"
                 : "query_scale",
             1.0 / std::sqrt(static_cast<double>(dims)) / head_dim);
    }
    for (size_t i = 0; i < p.items.size(); ++i)
      if (const std::string item = p.item_path(path, i); !item.ends_with(".teacher_tpl"))
        check(p.items[i], item);
  }
};

}  // namespace

void check_mup(const Template<BaseModel>& model, const std::map<std::string, int64_t>& base,
               const std::map<std::string, double>& widths) {
  MupCheck{base, widths}.check(resolved(model.to_tree()), "task.model");
}

std::map<std::string, int64_t> use_mup(Template<BaseModel>& model, int64_t model_dims,
                                       int64_t base_dims) {
  std::map<std::string, int64_t> base;
  if (base_dims == 0) return base;
  const double ratio = static_cast<double>(model_dims) / static_cast<double>(base_dims);
  const std::unique_ptr<BaseModel> made = model.instantiate();
  for (const Parameter& parameter : made->parameters().parameters())
    for (const auto& [axis, size, split] : parameter.type.axes) {
      if (parameter.is_frozen) continue;
      if (axis != "embed" && axis != "mlp" && axis != "heads" && axis != "kv_heads") continue;
      if (size * base_dims % model_dims != 0)
        fail(
            "mup_base_dims={}: at model_dims={} the size of {} is {}, of which the base model "
            "has no whole number; change one of them",
            base_dims, model_dims, axis, size);
      base[axis] = std::max(base[axis], size * base_dims / model_dims);
    }
  auto& lm = model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  const auto keep_rows = [&](auto& p) {
    if (p.scale_sqrt_depth) p.multiplier /= std::sqrt(ratio);
  };
  if (lm.separate_embedding_tpl.has())
    keep_rows(lm.separate_embedding_tpl.as<Embedding::HParams>());
  if (!lm.softmax_tpl.holds<SharedEmbeddingSoftmax::HParams>()) return base;
  auto& table = lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
  keep_rows(table);
  table.loss.multiplier /= ratio;
  return base;
}

}  // namespace tessera
