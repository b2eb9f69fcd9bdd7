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

// The inverse.
std::string with_layer(std::string_view stem, int64_t layer);

}  // namespace aerie
