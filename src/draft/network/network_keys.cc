#include "draft/network/network_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "base/errors.h"
#include "draft/method_settings.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/tree/static_tree.h"
#include "tensor/quantize.h"

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

Status check_draft_type(const MethodConfig& config) {
  const std::string& wanted = config.text(kDraftTypeKey);
  if (wanted.empty()) return {};
  const std::optional<DType> type = dtype_from_name(wanted);
  if (type && can_quantize(*type)) return {};
  return invalid("'{}' must be one of {}, not '{}'", kDraftTypeKey, quantizable_types(), wanted);
}

std::optional<DType> draft_type(const MethodConfig& config) {
  const std::string& type = config.text(kDraftTypeKey);
  return type.empty() ? std::nullopt : dtype_from_name(type);
}

Expected<std::vector<int32_t>> read_drafted_tokens(const MethodConfig& config, int vocab) {
  const int size = config.whole(kDraftVocabSizeKey);
  if (const std::string& file = config.text(kDraftVocabKey); !file.empty()) {
    return read_draft_vocabulary(file, size, vocab);
  }
  if (size == 0) return std::vector<int32_t>();
  return invalid_argument(
      "method {}: '{}' says how many of the tokens in '{}' are kept: give that file too",
      config.method->name, kDraftVocabSizeKey, kDraftVocabKey);
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
