// Names of tensors with the number of a layer in them, and names that stand for all layers' such.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aerie {

struct LayerName {
  std::string stem;    // with "{}" in the place of the number
  int64_t layer = -1;  // -1: there is no number
};

// "model.layers.7.mlp.up_proj" -> "model.layers.{}.mlp.up_proj" and 7. The first part that is a
// number is the layer; the last part is none.
LayerName split_layer(std::string_view name);

// The same with a second number, in what follows the first: "model.layers.7.mlp.experts.3.up_proj"
// -> "model.layers.{}.mlp.experts.{}.up_proj", 7 and 3. -1: there is none.
struct ExpertName {
  std::string stem;
  int64_t layer = -1;
  int64_t expert = -1;
};
ExpertName split_expert(std::string_view name);

// The inverse of split_layer().
std::string with_layer(std::string_view stem, int64_t layer);

}  // namespace aerie
