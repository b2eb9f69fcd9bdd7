#include "engine/live_speculations.h"

#include <utility>

#include "base/errors.h"
#include "engine/engine_draft_host.h"

namespace aerie {

Expected<std::unique_ptr<LiveSpeculations>> LiveSpeculations::make(OpenedModel& opened,
                                                                   int sequences) {
  std::unique_ptr<LiveSpeculations> out(new LiveSpeculations(opened, sequences));
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (size_t i = 0; i < opened.speculations.size(); ++i) {
    const EngineOptions& options = opened.options;
    One& one = out->all_.emplace_back();
    one.name = to_string(i == 0 ? options.speculation : options.more_speculations[i - 1]);
    std::unique_ptr<Drafter>& drafter = opened.speculations[i].drafter;
    if (drafter == nullptr) continue;
    one.drafter = std::make_shared<const int>(static_cast<int>(drafters.size()));
    drafters.push_back(std::move(drafter));
  }
  out->given_ = out->all_.size();
  AERIE_ASSIGN_OR_RETURN(out->choice_, choose_drafters(std::move(drafters)));
  return out;
}

std::vector<std::string> LiveSpeculations::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const One& one : all_) out.push_back(one.is_leaving ? std::string() : one.name);
  return out;
}

std::shared_ptr<const int> LiveSpeculations::drafter_of(int speculation) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(speculation);
  if (speculation < 0 || index >= all_.size()) return nullptr;
  return all_[all_[index].is_leaving ? 0 : index].drafter;
}

int64_t LiveSpeculations::added_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const One& one : all_) bytes += one.bytes;
  return bytes;
}

Expected<int> LiveSpeculations::add(const SpeculativeConfig& config) {
  if (config.tokens() > opened_.decoder.max_nodes) {
    return invalid_argument("{} drafts up to {} tokens, and there is room for {}",
                            to_string(config), config.tokens(), opened_.decoder.max_nodes);
  }
  if (count_added() >= kMostAdded) {
    return resource_exhausted("{} settings were added already: remove one", kMostAdded);
  }
  One one;
  one.name = to_string(config);
  MemoryRoom room = opened_.memory;
  room.taken += added_bytes();
  const int64_t before = room.taken;
  DraftTarget target = draft_target(opened_, sequences_);
  target.cost = opened_.cost.get();
  EngineDraftHost host(target, one.sources, &room, opened_.device.get());
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter, make_drafter_for_text(config, host));
  if (drafter != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const int number, choice_->add(std::move(drafter)));
    one.drafter = std::make_shared<const int>(number);
  }
  one.bytes = room.taken - before;
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(one));
  return static_cast<int>(all_.size()) - 1;
}

Status LiveSpeculations::remove(int speculation) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(speculation);
  if (speculation >= 0 && index < given_) {
    return invalid_argument("{} was there from the beginning, and stays", all_[index].name);
  }
  if (speculation < 0 || index >= all_.size() || all_[index].is_leaving) {
    return not_found("there is no setting {}", speculation);
  }
  all_[index].is_leaving = true;
  return {};
}

bool LiveSpeculations::sweep() {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (One& one : all_) {
    if (!one.is_leaving || one.name.empty() || one.drafter.use_count() > 1) continue;
    if (*one.drafter >= 0 && !choice_->remove(*one.drafter)) continue;
    one.name.clear();
    one.bytes = 0;
    one.sources.clear();
    any = true;
  }
  return any;
}

int LiveSpeculations::count_added() const {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (size_t i = given_; i < all_.size(); ++i) count += all_[i].name.empty() ? 0 : 1;
  return count;
}

}  // namespace aerie
