// SPDX-License-Identifier: Apache-2.0
// A TransformerLm as a flat list of its layers: loops and patterns of stacks are unrolled. Families
// read and write models in this form, and two models are compared in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/models/language_model.h"
#include "layers/models/transformer.h"

namespace tessera {

// Where the weights of a layer lie: the path of its block below the TransformerLm
// ("transformer.x_layers[3]."), and the index along the axis `layers`, or -1.
struct LayerPlace {
  std::string path;
  int64_t index = -1;
};

// A stack of layers, as a list.
struct LayerList {
  std::vector<TransformerBlock::HParams> layers;
  std::vector<LayerPlace> places;  // One for each layer; set by layers_of.
};

struct LayeredLm : LayerList {
  TransformerLm::HParams lm;  // The stacked_transformer_tpl, also of its encoder, has no meaning.
  LayerList encoder;          // Empty without an encoder.

  bool has_own_head() const { return lm.separate_embedding_tpl.has(); }  // It is not tied.
};

// The rotary positions of a layer's attention, or null if it has no place for them.
Template<RotaryPositionEmbedding>* rotary_of(TransformerBlock::HParams& layer);

// Lists the layers, with all sizes inherited. Error for a stack with other blocks than
// TransformerBlock.
LayeredLm layers_of(const Template<TransformerLm>& lm_tpl);

enum class StackStyle {
  kRepeated,  // A loop over equal layers, or over the period of a pattern.
  kUnrolled,
};
// The reverse: a model that traces as few different blocks as possible.
TransformerLm::HParams stacked(const LayeredLm& model, StackStyle style);

// A setting in which two models differ, of these layers, or of none.
struct SettingDifference {
  std::string path;  // "vocab_size", "attention_tpl.num_kv_heads".
  std::string first, second;
  std::vector<int64_t> layers;

  // "attention_tpl.num_kv_heads", with "of layers 0, 2" unless all of them differ.
  std::string name(int64_t num_layers) const;
};

enum class Missing {
  kIsDifferent,
  kIsAllowed,  // The first model may lack biases and scales that the second has.
};

// Compares settings that change logits: not dropout, losses, initialisers, dtypes or rules, nor how
// equivalent weights are stored (combine_qkv, direct_scale, interleaved). Real numbers are equal up
// to rounding.
std::vector<SettingDifference> differences(const LayeredLm& first, const LayeredLm& second,
                                           Missing missing);

}  // namespace tessera
