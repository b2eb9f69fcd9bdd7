#include "model/import/layer_names.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace aerie {

LayerName split_layer(std::string_view name) {
  for (size_t dot = 0; dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    const size_t from = dot == 0 ? 0 : dot + 1;
    const size_t end = name.find('.', from);
    if (end == std::string_view::npos) break;
    int64_t layer = 0;
    const auto [last, error] = std::from_chars(name.data() + from, name.data() + end, layer);
    const bool canonical = last == name.data() + end && error == std::errc() && layer >= 0 &&
                           std::to_string(layer).size() == end - from;
    if (canonical) {
      return {std::string(name.substr(0, from)) + "{}" + std::string(name.substr(end)), layer};
    }
  }
  return {std::string(name), -1};
}

ExpertName split_expert(std::string_view name) {
  const LayerName outer = split_layer(name);
  if (outer.layer < 0) return {outer.stem, -1, -1};
  const size_t behind = outer.stem.find("{}") + 2;
  const LayerName inner = split_layer(std::string_view(outer.stem).substr(behind));
  return {outer.stem.substr(0, behind) + inner.stem, outer.layer, inner.layer};
}

std::string with_layer(std::string_view stem, int64_t layer) {
  const size_t at = stem.find("{}");
  if (at == std::string_view::npos) return std::string(stem);
  return fmt::format("{}{}{}", stem.substr(0, at), layer, stem.substr(at + 2));
}

}  // namespace aerie
