// What all trained heads have in common beside their rows: their keys, how one is loaded by its
// method's name, and how it becomes a drafter.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "draft/draft_host.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "draft/method.h"
#include "draft/network/network_keys.h"
#include "model/import/head_file.h"

namespace aerie {

// The layers to tap, of heads that have a choice.
inline constexpr std::string_view kTapLayersKey = "tap_layers";

constexpr std::array<MethodKey, 10> head_keys(
    std::string_view model = "the head's folder (config.json and safetensors)",
    bool needs_model = true) {
  return joined(
      network_keys(model, "levels of a draft, at most; 0: as many as tokens", needs_model),
      kWeightKeys);
}
inline constexpr auto kHeadKeys = head_keys();

// A key that is left to the head's configuration unless it is given.
constexpr MethodKey switch_key(std::string_view name, std::string_view what) {
  return {name, MethodKey::Kind::kFlag, 0, 1, MethodKey::kUnsaid, false, what};
}

// Method::check of heads: the tree and the type.
Status check_head(MethodConfig& config);

// What a user can say about a head.
struct HeadSettings : HeadOptions {
  int depth = 5;  // of drafts: for heads that draft several depths at once
  // By the switch_key() of the head's method: what was given.
  std::map<std::string, bool, std::less<>> switches = {};

  std::optional<bool> said(std::string_view key) const {
    const auto found = switches.find(key);
    return found == switches.end() ? std::nullopt : std::optional(found->second);
  }
};

// Whether a method of this name is a trained head's.
bool is_head_method(std::string_view method);

// Requires is_head_method(method). The file must outlive the head.
Expected<std::unique_ptr<FeatureHead>> load_head(std::string_view method, HeadFile& file,
                                                 const HeadTarget& target,
                                                 const HeadSettings& settings);

// For a head that is computed by the target's device: what it is loaded with. While
// HeadDevice::packer is there, which has to go once it is loaded.
void put_on_device(const DeviceParts& on, HeadTarget& target);

// Method::make of heads: opens the folder, holds it against the target (sizes; the tokenizer, if
// the folder has one) and the memory that is left.
Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config, DraftHost& host);

// What the settings do not say.
struct HeadDrafting {
  std::string path;    // of the folder
  bool beams = false;  // as NetworkDrafterOptions has it
};
Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config, DraftHost& host,
                                                     const HeadDrafting& drafting);

// A head's method, which is made by make_head_drafter().
constexpr Method head_method(std::string_view name, std::string_view what,
                             decltype(Method::load_head) load,
                             std::span<const MethodKey> keys = kHeadKeys) {
  return {
      .name = name,
      .what = what,
      .keys = keys,
      .aliases = kNetworkAliases,
      .check = check_head,
      .make = make_head_drafter,
      .load_head = load,
      .has_cache = true,
  };
}

}  // namespace aerie
