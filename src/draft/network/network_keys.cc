#include "draft/network/network_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "draft/method_settings.h"
#include "draft/tree/static_tree.h"

namespace aerie {

Status check_tree(MethodConfig& config) {
  const auto given = config.texts.find(kTreeKey);
  if (given == config.texts.end()) return {};
  const StaticTree* tree = find_static_tree(given->second);
  if (tree == nullptr) {
    return invalid("'{}' must be {}, not '{}'", kTreeKey, fmt::join(static_tree_names(), " or "),
                   given->second);
  }
  config.numbers.try_emplace(std::string(kTokensKey), tree->size());
  return {};
}

NetworkDrafterOptions read_network_options(const MethodConfig& config, const DraftTarget& target) {
  NetworkDrafterOptions options;
  read_options(config, network_options(""), options);
  options.method = config.method->name;
  options.shape = find_static_tree(config.text(kTreeKey));
  options.vocab = target.vocab;
  options.max_sequences = target.max_sequences;
  options.cache_positions = target.cache_positions;
  options.backend = target.backend;
  options.pool = target.pool;
  return options;
}

}  // namespace aerie
