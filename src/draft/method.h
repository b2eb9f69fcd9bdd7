// What a drafting method says of itself. Its file defines one Method, which one line of methods.cc
// lists; parsing, help, messages and making go by it, and nothing else knows a method by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

class Drafter;
class DraftHost;
class FeatureHead;
class HeadFile;
class ModelFile;
struct HeadSettings;
struct HeadTarget;
struct MethodConfig;

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

// How "auto" has a method that its settings do not name.
struct AutoUse {
  int place = 0;  // ascending among all; 0: it has not
  struct Number {
    std::string_view key;
    double value = 0.0;
  };
  std::span<const Number> numbers = {};  // settings other than the defaults
};

struct Method {
  std::string_view name;
  std::string_view what;            // one line of help
  std::span<const MethodKey> keys;  // in the order in which they are listed and written
  std::span<const MethodAlias> aliases = {};

  // What the settings must be beside their ranges, and what they imply; null: nothing.
  Status (*check)(MethodConfig& config) = nullptr;
  // The drafter. What the host opens for it outlives it.
  Expected<std::unique_ptr<Drafter>> (*make)(const MethodConfig& config, DraftHost& host) = nullptr;
  // Of trained heads alone: reads one (draft/heads/heads.h). The file must outlive it.
  Expected<std::unique_ptr<FeatureHead>> (*load_head)(HeadFile& file, const HeadTarget& target,
                                                      const HeadSettings& settings) = nullptr;

  // For methods that need no more than the target.
  AutoUse in_auto = {};
  // Of methods that may come with the target: whether they do, by its file. "auto" takes them then,
  // with their defaults.
  bool (*comes_with)(const ModelFile& target) = nullptr;
  // It keeps keys and values of its own.
  bool has_cache = false;
  // It goes by what a request brings, and is of no use without.
  bool of_request = false;
  // A server offers it to requests unless it is told what to offer.
  bool offered = false;
  // "model" alone, without a method, means this one.
  bool of_model = false;
  // And this word as "model", as in vLLM.
  std::string_view model_word = {};

  const MethodAlias* find_alias(std::string_view name) const;  // null: there is none
  // One of its keys, or kGateKey, which every method has; null: there is none.
  const MethodKey* find(std::string_view key) const;
};

// A method and the settings that were given for it.
struct MethodConfig {
  const Method* method = nullptr;  // of methods()
  std::map<std::string, double, std::less<>> numbers;
  std::map<std::string, std::string, std::less<>> texts;
  // Whether what it drafts is verified as it is: nobody chooses among its nodes and others'.
  bool is_alone = false;

  // What was given, or the default. Requires a key of the method of that kind.
  double number(std::string_view key) const;
  int whole(std::string_view key) const { return static_cast<int>(number(key)); }
  const std::string& text(std::string_view key) const;
  // The most tokens drafted in a round.
  int tokens() const;

  bool operator==(const MethodConfig&) const = default;
};

// Each method has this key: the most tokens that it drafts in a round.
inline constexpr std::string_view kTokensKey = "num_speculative_tokens";
// And this one, behind its own: 0: drafts whether it pays or not.
extern const MethodKey kGateKey;
// Names a draft model's file or a head's folder.
inline constexpr std::string_view kModelKey = "model";

// Of trained heads: the type of their matrices.
inline constexpr std::string_view kDraftTypeKey = "draft_type";

// Words that no method can have as its name: plain decoding, and how several work together.
inline constexpr std::string_view kPlainWord = "none";
inline constexpr std::string_view kFirstWord = "first";
inline constexpr std::string_view kMergeWord = "merge";
inline constexpr std::string_view kAutoWord = "auto";

// In the order in which they are listed.
std::span<const Method* const> methods();
const Method* find_method(std::string_view name);  // null: there is none

// One more, after those that are there; it and what it names must outlive all use. Not thread-safe:
// before settings are parsed. kInvalidArgument, saying what is wrong, for a name that is taken or
// cannot be written, and for a method without make() or kTokensKey.
Status add_method(const Method& method);

// Whether a key of this name belongs to any method.
bool is_method_key(std::string_view key);

}  // namespace aerie
