#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/errors.h"
#include "draft/method.h"

// The methods, one line each: the name of what the method's file defines.
#define AERIE_DRAFT_METHODS(METHOD) \
  METHOD(kNgramMethod)              \
  METHOD(kPredictionMethod)         \
  METHOD(kSuffixMethod)             \
  METHOD(kRestMethod)               \
  METHOD(kRecyclingMethod)          \
  METHOD(kLookaheadMethod)          \
  METHOD(kEarlyExitMethod)          \
  METHOD(kLayerSkipMethod)          \
  METHOD(kDraftModelMethod)         \
  METHOD(kEagleMethod)              \
  METHOD(kEagle3Method)             \
  METHOD(kMedusaMethod)             \
  METHOD(kHydraMethod)              \
  METHOD(kMlpSpeculatorMethod)      \
  METHOD(kRedrafterMethod)          \
  METHOD(kMtpMethod)                \
  METHOD(kDflashMethod)             \
  METHOD(kDsparkMethod)

namespace aerie {

#define AERIE_DECLARE(method) extern const Method method;
AERIE_DRAFT_METHODS(AERIE_DECLARE)
#undef AERIE_DECLARE

namespace {

#define AERIE_ADDRESS(method) &(method),
constexpr const Method* kBuiltIn[] = {AERIE_DRAFT_METHODS(AERIE_ADDRESS)};
#undef AERIE_ADDRESS

std::vector<const Method*>& registry() {
  static std::vector<const Method*> all(std::begin(kBuiltIn), std::end(kBuiltIn));
  return all;
}

}  // namespace

constinit const MethodKey kGateKey = {
    "gate", MethodKey::Kind::kFlag, 0, 1, 1, false, "0: drafts whether it pays or not"};

const MethodKey* Method::find(std::string_view key) const {
  if (key == kGateKey.name) return &kGateKey;
  const auto found = std::ranges::find(keys, key, &MethodKey::name);
  return found == keys.end() ? nullptr : &*found;
}

const MethodAlias* Method::find_alias(std::string_view alias) const {
  const auto found = std::ranges::find(aliases, alias, &MethodAlias::name);
  return found == aliases.end() ? nullptr : &*found;
}

double MethodConfig::number(std::string_view key) const {
  const auto given = numbers.find(key);
  return given != numbers.end() ? given->second : method->find(key)->fallback;
}

const std::string& MethodConfig::text(std::string_view key) const {
  static const std::string kEmpty;
  const auto given = texts.find(key);
  return given != texts.end() ? given->second : kEmpty;
}

int MethodConfig::tokens() const {
  return whole(kTokensKey);
}

std::span<const Method* const> methods() {
  return registry();
}

const Method* find_method(std::string_view name) {
  const auto found =
      std::ranges::find_if(methods(), [&](const Method* method) { return method->name == name; });
  return found == methods().end() ? nullptr : *found;
}

Status add_method(const Method& method) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument("drafting method '{}': {}", method.name, why);
  };
  for (const std::string_view word : {kPlainWord, kFirstWord, kMergeWord, kAutoWord}) {
    if (method.name == word) return refuse("the name means something else");
  }
  if (find_method(method.name) != nullptr) return refuse("there is one of that name");
  if (method.name.empty() || method.name.find_first_of(":,=\\ ") != std::string_view::npos) {
    return refuse("the name is empty or holds what separates settings");
  }
  if (method.make == nullptr) return refuse("it has no make()");
  if (method.find(kTokensKey) == nullptr) {
    return refuse(fmt::format("it has no key {}", kTokensKey));
  }
  registry().push_back(&method);
  return {};
}

bool is_method_key(std::string_view key) {
  return std::ranges::any_of(methods(), [&](const Method* method) {
    return method->find(key) != nullptr || method->find_alias(key) != nullptr;
  });
}

}  // namespace aerie
