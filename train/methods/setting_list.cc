#include "train/methods/setting_list.h"

#include <algorithm>
#include <cassert>
#include <type_traits>

namespace aerie::train {
namespace {

constexpr const char* kDistance = "Distance from the target: kl, reverse-kl, js, tv, nla, lk";

}  // namespace

void SettingList::add_depth(int& depth) {
  add("depth", depth, {1, 64}, "Tokens of a draft, for evaluation and for those who load it");
}

void SettingList::add_intermediate(int64_t& width) {
  add("intermediate", width, {0, 1 << 24}, "Width of the feed-forward; 0: the target's");
}

void SettingList::add_draft_vocab(std::vector<int32_t>& ids) {
  draft_vocab_->ids = &ids;
  add("draft-vocab", draft_vocab_->size, {0, 1 << 30},
      "Draft only the so many most frequent tokens of the data; 0: all");
}

void SettingList::add_loss(Divergence& loss) {
  add_word("loss", loss, parse_divergence, divergence_name(loss), kDistance);
}

void SettingList::add_loss(std::optional<Divergence>& loss) {
  add_word("loss", loss, parse_divergence, "",
           std::string(kDistance) + " (default: cross entropy with the text)");
}

void SettingList::set(const SettingValue& value) {
  const auto found = std::ranges::find(all_, value.name, &Setting::name);
  assert(found != all_.end());
  std::visit(
      [&]<typename Field>(Field& field) {
        if constexpr (std::is_same_v<Field, int*> || std::is_same_v<Field, int64_t*> ||
                      std::is_same_v<Field, double*>) {
          *field = static_cast<std::remove_pointer_t<Field>>(value.value);
        } else {
          assert(false && "not a number");
        }
      },
      found->field);
}

Setting& SettingList::put(Setting setting) {
  setting.negated = setting.name.starts_with('!');
  if (setting.negated) setting.name.erase(0, 1);
  setting.shows_default = !std::holds_alternative<bool*>(setting.field) &&
                          !std::holds_alternative<std::vector<int32_t>*>(setting.field);
  return all_.emplace_back(std::move(setting));
}

}  // namespace aerie::train
