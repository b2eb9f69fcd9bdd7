// The drafting methods and their settings, as users write them: the one table that parsing, help
// and messages go by. engine/speculation.cc makes a drafter of each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace aerie {

struct MethodKey {
  enum class Kind : uint8_t {
    kWhole,     // a whole number
    kFraction,  // any number
    kFlag,      // true or false, 1 or 0; kept as such a number
    kText,      // not empty
  };
  std::string_view name;
  Kind kind = Kind::kWhole;
  // Numbers: least and most. `fallback` where none is given; of a flag, kUnsaid where that is left
  // to the head's configuration.
  double least = 0.0;
  double most = 0.0;
  double fallback = 0.0;
  bool required = false;
  std::string_view what;  // "the draft model's file"

  static constexpr double kUnsaid = -1.0;
};

// Another project's name of a key.
struct MethodAlias {
  std::string_view name;
  std::string_view key;  // of the method
  double added = 0.0;    // to a number
};

struct Method {
  std::string_view name;
  std::span<const MethodKey> keys;  // in the order in which they are listed and written
  std::string_view what;            // one line of help
  std::span<const MethodAlias> aliases = {};

  const MethodAlias* find_alias(std::string_view name) const;  // null: there is none
  const MethodKey* find(std::string_view key) const;           // null: there is none
};

// Each method has this key: the most tokens that it drafts in a round.
inline constexpr std::string_view kTokensKey = "num_speculative_tokens";
// The name of a static tree (draft/tree/static_tree.h).
inline constexpr std::string_view kTreeKey = "tree";
// Of trained heads: the type of their matrices.
inline constexpr std::string_view kDraftTypeKey = "draft_type";
// How a draft model's tokens are matched with the target's: kVocabularyMatches.
inline constexpr std::string_view kVocabularyKey = "vocabulary";
inline constexpr std::string_view kVocabularyMatches[] = {"same", "intersection", "text"};

std::span<const Method> methods();
const Method* find_method(std::string_view name);  // null: there is none

// Whether a key of this name belongs to any method.
bool is_method_key(std::string_view key);

}  // namespace aerie
