// Building a Bpe from what a file says, which is hostile until it is checked.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/pieces/byte_alphabet.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

// A hostile name of a megabyte has no place in a message.
constexpr size_t kShownOfPiece = 40;
constexpr uint32_t kPlane0 = 0x10000;
constexpr uint32_t kSignCode = 0x2581;

bool joins_by_score(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUnused;
}

template <typename Visit>
void for_each_code(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const Utf8Character character = utf8_first(text);
    visit(character.code, text.substr(0, character.length));
    text.remove_prefix(character.length);
  }
}

// Names in order, for finding all that a text begins with.
class SortedNames {
 public:
  void add(std::string_view name, int32_t symbol) { names_.emplace_back(name, symbol); }
  void sort() { std::ranges::sort(names_); }

  // Calls visit(length, symbol) for the names that are proper prefixes of `text`, shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    auto low = names_.begin(), high = names_.end();
    for (size_t depth = 0; depth + 1 < text.size() && low != high; ++depth) {
      const auto wanted = static_cast<uint8_t>(text[depth]);
      const auto byte = [depth](const auto& name) {
        return depth < name.first.size() ? static_cast<int>(static_cast<uint8_t>(name.first[depth]))
                                         : -1;
      };
      low = std::partition_point(low, high, [&](const auto& n) { return byte(n) < wanted; });
      high = std::partition_point(low, high, [&](const auto& n) { return byte(n) <= wanted; });
      if (low != high && low->first.size() == depth + 1) visit(depth + 1, low->second);
    }
  }

 private:
  std::vector<std::pair<std::string_view, int32_t>> names_;
};

// Characters of tokens that are no tokens themselves get numbers behind the vocabulary's.
struct ExtraCharacters {
  std::vector<std::string> names;
  std::vector<uint32_t> codes;
};

ExtraCharacters extra_characters(const Vocabulary& vocabulary) {
  std::unordered_set<uint32_t> seen;
  ExtraCharacters extra;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!joins_by_score(vocabulary.type(id)) || !is_valid_utf8(vocabulary.name(id))) continue;
    for_each_code(vocabulary.name(id), [&](uint32_t code, std::string_view character) {
      if (!seen.insert(code).second) return;
      const int32_t token = vocabulary.find(character);
      if (token >= 0 && joins_by_score(vocabulary.type(token))) return;
      extra.names.emplace_back(character);
      extra.codes.push_back(code);
    });
  }
  return extra;
}

// Finds the pairs of tokens or characters whose concatenation is a token.
class PairFinder {
 public:
  PairFinder(const Vocabulary& vocabulary, const ExtraCharacters& extra)
      : vocabulary_(vocabulary), extra_(extra) {
    symbols_.reserve(static_cast<size_t>(vocabulary.size()) + extra.names.size());
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view name = vocabulary.name(id);
      if (!joins_by_score(vocabulary.type(id)) || name.empty() || !is_valid_utf8(name)) continue;
      symbols_.add(name, id);
      tokens_.push_back(id);
    }
    for (size_t i = 0; i < extra.names.size(); ++i) {
      symbols_.add(extra.names[i], vocabulary.size() + static_cast<int32_t>(i));
    }
  }

  std::vector<MergeRule> find() {
    bool sorted = false;
    for (const int32_t id : tokens_) {
      const std::string_view name = vocabulary_.name(id);
      // Looking up all parts of a name takes time with the square of its length.
      if (name.size() <= kShortName) {
        add_short(name, id);
        continue;
      }
      if (!sorted) sort_names();
      sorted = true;
      add_long(name, id);
    }
    return std::move(rules_);
  }

 private:
  static constexpr size_t kShortName = 64;

  void add_short(std::string_view name, int32_t id) {
    for (size_t cut = utf8_length(name[0]); cut < name.size(); cut += utf8_length(name[cut])) {
      const int32_t left = symbols_.find(name.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = symbols_.find(name.substr(cut));
      if (right >= 0) rules_.push_back({left, right, id});
    }
  }

  void sort_names() {
    reversed_.reserve(tokens_.size() + extra_.names.size());
    const auto add = [this](std::string_view name, int32_t symbol) {
      forward_.add(name, symbol);
      backward_.add(reversed_.emplace_back(name.rbegin(), name.rend()), symbol);
    };
    for (const int32_t id : tokens_) add(vocabulary_.name(id), id);
    for (size_t i = 0; i < extra_.names.size(); ++i) {
      add(extra_.names[i], vocabulary_.size() + static_cast<int32_t>(i));
    }
    forward_.sort();
    backward_.sort();
  }

  void add_long(std::string_view name, int32_t id) {
    std::vector<int32_t> right_of(name.size(), -1);  // by the length of the left part
    const std::string mirror(name.rbegin(), name.rend());
    backward_.prefixes(
        mirror, [&](size_t length, int32_t symbol) { right_of[name.size() - length] = symbol; });
    forward_.prefixes(name, [&](size_t length, int32_t symbol) {
      if (right_of[length] >= 0) rules_.push_back({symbol, right_of[length], id});
    });
  }

  const Vocabulary& vocabulary_;
  const ExtraCharacters& extra_;
  NameTable symbols_;
  std::vector<int32_t> tokens_;
  std::vector<MergeRule> rules_;
  SortedNames forward_, backward_;
  std::vector<std::string> reversed_;
};

std::vector<MergeRule> pairs_that_join(const Vocabulary& vocabulary, const ExtraCharacters& extra) {
  return PairFinder(vocabulary, extra).find();
}

}  // namespace

Expected<std::unique_ptr<Bpe>> Bpe::from_merges(
    const Vocabulary& vocabulary,
    const std::vector<std::pair<std::string_view, std::string_view>>& merges,
    const BpeOptions& options, const std::string& key) {
  if (merges.size() >= MergeTable::kNoRank) return invalid_data(key + " has too many entries");
  std::unique_ptr<Bpe> model(new Bpe(vocabulary, options));
  std::vector<MergeRule> rules;
  rules.reserve(merges.size());
  std::string joined;
  const auto broken = [&](const char* why) {
    const auto& [left, right] = merges[rules.size()];
    return invalid_data(fmt::format("{}: entry {}, '{} {}', {}", key, rules.size(),
                                    printable(left, kShownOfPiece), printable(right, kShownOfPiece),
                                    why));
  };
  for (const auto& [left, right] : merges) {
    if (left.empty() || right.empty()) return broken("is not two tokens with a space between them");
    joined.assign(left).append(right);
    const MergeRule rule{vocabulary.find(left), vocabulary.find(right), vocabulary.find(joined)};
    if (rule.left < 0 || rule.right < 0) {
      return broken("joins a token that is not in the vocabulary");
    }
    if (rule.result < 0) return broken("makes a token that is not in the vocabulary");
    rules.push_back(rule);
  }
  model->merges_ = MergeTable(rules, vocabulary.size());
  if (const uint32_t rank = model->merges_.duplicate(); rank != MergeTable::kNoRank) {
    return invalid_data(fmt::format("{}: entry {}, '{} {}', is there twice", key, rank,
                                    printable(merges[rank].first, kShownOfPiece),
                                    printable(merges[rank].second, kShownOfPiece)));
  }
  model->rules_ = std::move(rules);
  model->read_bytes();
  if (!options.bytes) {
    model->read_characters();
    model->read_joins();
  }
  if (options.ignore_merges) {
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!model->in_model(id) || vocabulary.name(id).empty()) continue;
      model->words_.add(options.bytes ? vocabulary.piece(id) : vocabulary.name(id), id);
    }
  }
  model->options_.in_model = nullptr;
  return model;
}

std::vector<MergeRule> Bpe::rules_of_scores(const Vocabulary& vocabulary) {
  return pairs_that_join(vocabulary, extra_characters(vocabulary));
}

Expected<std::unique_ptr<Bpe>> Bpe::from_scores(const Vocabulary& vocabulary,
                                                const std::vector<float>& scores,
                                                bool byte_fallback) {
  BpeOptions options;
  options.bytes = false;
  options.byte_fallback = byte_fallback;
  options.fuse_unk = true;
  options.unk = vocabulary.unk();
  std::unique_ptr<Bpe> model(new Bpe(vocabulary, options));
  const ExtraCharacters extra = extra_characters(vocabulary);
  std::vector<MergeRule> rules = pairs_that_join(vocabulary, extra);
  if (rules.size() >= MergeTable::kNoRank ||
      static_cast<size_t>(vocabulary.size()) + extra.codes.size() >= INT32_MAX) {
    return invalid_data("the vocabulary has too many tokens");
  }
  const auto score = [&](const MergeRule& rule) {
    return scores[static_cast<size_t>(rule.result)];
  };
  for (const MergeRule& rule : rules) {
    if (!std::isnan(score(rule))) continue;
    return invalid_data(fmt::format("the score of token {} is not a number", rule.result));
  }
  AERIE_RETURN_IF_ERROR(model->expand_unused(rules));
  std::ranges::sort(rules,
                    [&](const MergeRule& a, const MergeRule& b) { return score(a) > score(b); });
  // Rules of equal score have equal rank: of these the leftmost pair joins first.
  std::vector<uint32_t> ranks(rules.size(), 0);
  for (size_t i = 1; i < rules.size(); ++i) {
    ranks[i] = ranks[i - 1] + (score(rules[i]) == score(rules[i - 1]) ? 0 : 1);
  }
  const auto symbols =
      static_cast<int32_t>(static_cast<size_t>(vocabulary.size()) + extra.codes.size());
  model->merges_ = MergeTable(rules, ranks, symbols);
  model->extra_codes_ = extra.codes;
  model->read_bytes();
  model->read_characters();
  model->read_joins();
  return model;
}

// An unused token takes part in joining, and what is left of it in the end falls into its parts.
Status Bpe::expand_unused(const std::vector<MergeRule>& rules) {
  for (const MergeRule& rule : rules) {
    if (vocabulary_.type(rule.result) != TokenType::kUnused) continue;
    if (!expanded_.emplace(rule.result, std::pair(rule.left, rule.right)).second) {
      return not_supported(
          "token {}, '{}', is unused, and several pairs of tokens make it; what it falls into is "
          "not supported",
          rule.result, printable(vocabulary_.name(rule.result), kShownOfPiece));
    }
  }
  return {};
}

bool Bpe::in_model(int32_t id) const {
  if (options_.in_model != nullptr) return (*options_.in_model)[static_cast<size_t>(id)];
  return joins_by_score(vocabulary_.type(id));
}

void Bpe::read_bytes() {
  std::string name;
  for (int byte = 0; byte < 256; ++byte) {
    name.clear();
    int32_t id = -1;
    if (options_.bytes) {
      append_byte_name(static_cast<uint8_t>(byte), name);
      id = vocabulary_.find(name);
      // A control token may be called "#"; it is not what text encodes to.
      if (id >= 0 && !in_model(id)) id = -1;
    } else {
      id = vocabulary_.find(name_of_byte(static_cast<uint8_t>(byte)));
    }
    byte_ids_[static_cast<size_t>(byte)] = id;
  }
}

void Bpe::set_symbol(uint32_t code, int32_t symbol) {
  if (code >= kPlane0) {
    other_planes_[code] = symbol;
  } else {
    plane0_[code] = symbol;
  }
}

void Bpe::read_characters() {
  plane0_.assign(kPlane0, -1);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view name = vocabulary_.name(id);
    if (name.empty() || utf8_sequence_length(name) != name.size()) continue;
    if (in_model(id)) set_symbol(utf8_first(name).code, id);
  }
  for (size_t i = 0; i < extra_codes_.size(); ++i) {
    set_symbol(extra_codes_[i], vocabulary_.size() + static_cast<int32_t>(i));
  }
}

void Bpe::read_joins() {
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view name = vocabulary_.name(id);
    if (!is_valid_utf8(name)) continue;
    uint32_t before = 0;
    bool first = true;
    for_each_code(name, [&](uint32_t code, std::string_view) {
      if (code == kSignCode) {
        falls_apart_ = true;
        if (!first) before_sign_.insert(before);
      }
      before = code;
      first = false;
    });
  }
}

}  // namespace aerie
