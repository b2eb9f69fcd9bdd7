#include "parallel/leading_model.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/errors.h"
#include "core/message.h"
#include "parallel/rank_message.h"

namespace aerie {

LeadingModel::LeadingModel(std::unique_ptr<Model> own, Group& group)
    : own_(std::move(own)), group_(group) {}

LeadingModel::~LeadingModel() {
  tell_end(group_);
}

ModelConfig LeadingModel::cache_config() const {
  ModelConfig config = own_->config();
  config.rank = {group_.rank(), group_.size()};
  return config;
}

Status LeadingModel::attach(KvCache& cache, std::span<const int32_t> skipped) {
  Attached& attached = caches_[&cache];
  attached.number = next_++;
  attached.journal = std::make_unique<KvJournal>();
  cache.write_down(attached.journal.get());
  message_.clear();
  MessageWriter out(message_);
  out.value(RankMessage::kCache);
  write_order({attached.number, {skipped.begin(), skipped.end()}, cache.creation()}, out);
  group_.tell(message_);
  const Status status = collect_statuses(group_);
  if (!status.ok()) detach(cache);
  return status;
}

void LeadingModel::detach(KvCache& cache) {
  const auto found = caches_.find(&cache);
  if (found == caches_.end()) return;
  cache.write_down(nullptr);
  message_.clear();
  MessageWriter out(message_);
  out.value(RankMessage::kDrop);
  out.value(found->second.number);
  group_.tell(message_);
  caches_.erase(found);
}

Link LeadingModel::measure_link() {
  message_.clear();
  MessageWriter(message_).value(RankMessage::kLink);
  group_.tell(message_);
  return aerie::measure_link(group_);
}

// What was done to the other caches goes along, so that nothing gathers.
ForwardOutputs LeadingModel::forward(const ForwardBatch& batch, KvCache& cache) {
  const auto found = caches_.find(&cache);
  assert(found != caches_.end());
  message_.clear();
  MessageWriter out(message_);
  out.value(RankMessage::kForward);
  out.value(static_cast<uint32_t>(caches_.size()));
  for (auto& [address, attached] : caches_) {
    out.value(attached.number);
    out.values(attached.journal->bytes());
    attached.journal->clear();
  }
  out.value(found->second.number);
  write_batch(batch, out);
  group_.tell(message_);
  return own_->forward(batch, cache);
}

namespace {

class Follower {
 public:
  Follower(Model& model, Group& group, const CheckRoom& check_room)
      : model_(model), group_(group), check_room_(check_room) {}

  Status run() {
    for (;;) {
      group_.listen(message_);
      if (message_.empty()) return {};
      MessageReader in(message_);
      switch (in.value<RankMessage>()) {
        case RankMessage::kEnd:
          return {};
        case RankMessage::kLink:
          measure_link(group_);
          break;
        case RankMessage::kCache:
          group_.answer(write_status(make_cache(in)));
          break;
        case RankMessage::kDrop:
          caches_.erase(in.value<uint32_t>());
          break;
        case RankMessage::kForward:
          AERIE_RETURN_IF_ERROR(forward(in));
          break;
        default:
          return internal_error("a message of the leader that makes no sense");
      }
    }
  }

 private:
  Status make_cache(MessageReader& in) {
    const CacheOrder order = read_order(in);
    if (!in.good()) return internal_error("an order of the leader ends too early");
    ModelConfig config = model_.config().without(order.skipped);
    config.rank = {group_.rank(), group_.size()};
    AERIE_RETURN_IF_ERROR(check_room_(KvCache::bytes_needed(config, order.creation)));
    AERIE_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(config, order.creation));
    caches_.insert_or_assign(order.number, std::make_unique<KvCache>(std::move(cache)));
    return {};
  }

  Expected<KvCache*> cache_of(uint32_t number) {
    const auto found = caches_.find(number);
    if (found == caches_.end()) {
      return internal_error("the leader speaks of a cache that is not here");
    }
    return found->second.get();
  }

  // What the leader saw of the cache has to be what is here; pages may have been added since.
  static Status check_alike(const ForwardBatch& batch, const KvCache& cache) {
    for (const BatchSequence& s : batch.sequences) {
      if (s.id < 0) continue;
      const std::span<const int32_t> here = cache.pages(s.id);
      if (here.size() >= s.pages.size() &&
          std::ranges::equal(here.first(s.pages.size()), s.pages)) {
        continue;
      }
      return internal_error("the cache of this rank has other pages than the leader's");
    }
    return {};
  }

  Status forward(MessageReader& in) {
    const auto journals = in.value<uint32_t>();
    for (uint32_t i = 0; i < journals && in.good(); ++i) {
      AERIE_ASSIGN_OR_RETURN(KvCache * changed, cache_of(in.value<uint32_t>()));
      in.values(journal_);
      AERIE_RETURN_IF_ERROR(replay(journal_, *changed));
    }
    AERIE_ASSIGN_OR_RETURN(KvCache * cache, cache_of(in.value<uint32_t>()));
    AERIE_RETURN_IF_ERROR(batch_.read(in));
    AERIE_RETURN_IF_ERROR(check_alike(batch_.batch(), *cache));
    return model_.forward(batch_.batch(), *cache).status;
  }

  Model& model_;
  Group& group_;
  const CheckRoom& check_room_;
  std::map<uint32_t, std::unique_ptr<KvCache>> caches_;
  std::vector<std::byte> message_, journal_;
  ReceivedBatch batch_;
};

}  // namespace

Status follow(Model& model, Group& group, const CheckRoom& check_room) {
  return Follower(model, group, check_room).run();
}

void tell_end(Group& group) {
  std::vector<std::byte> message;
  MessageWriter(message).value(RankMessage::kEnd);
  group.tell(message);
}

Status collect_statuses(Group& group) {
  const std::vector<std::vector<std::byte>> answers = group.collect();
  for (size_t rank = 1; rank < answers.size(); ++rank) {
    const Status status = read_status(answers[rank]);
    if (!status.ok()) return status.with_context(group.name(static_cast<int>(rank)));
  }
  return {};
}

}  // namespace aerie
