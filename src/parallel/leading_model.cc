#include "parallel/leading_model.h"

#include <cassert>
#include <utility>

#include "base/errors.h"
#include "core/message.h"
#include "parallel/rank_message.h"

namespace aerie {

LeadingModel::LeadingModel(std::unique_ptr<Model> own, Group& group)
    : own_(std::move(own)), group_(group) {}

LeadingModel::~LeadingModel() {
  message_.clear();
  MessageWriter(message_).value(RankMessage::kEnd);
  group_.tell(message_);
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
  return collect_statuses(group_);
}

Link LeadingModel::measure_link() {
  message_.clear();
  MessageWriter(message_).value(RankMessage::kLink);
  group_.tell(message_);
  return aerie::measure_link(group_);
}

ForwardOutputs LeadingModel::forward(const ForwardBatch& batch, KvCache& cache) {
  const auto found = caches_.find(&cache);
  assert(found != caches_.end());
  KvJournal& journal = *found->second.journal;
  message_.clear();
  MessageWriter out(message_);
  out.value(RankMessage::kForward);
  out.value(found->second.number);
  out.values(journal.bytes());
  write_batch(batch, out);
  journal.clear();
  group_.tell(message_);
  return own_->forward(batch, cache);
}

namespace {

class Follower {
 public:
  Follower(Model& model, Group& group) : model_(model), group_(group) {}

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
    const KvCache::Creation& c = order.creation;
    AERIE_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(config, c.positions, c.sequences, c.type,
                                                          c.states, c.windows));
    caches_.insert_or_assign(order.number, std::make_unique<KvCache>(std::move(cache)));
    return {};
  }

  Status forward(MessageReader& in) {
    const auto found = caches_.find(in.value<uint32_t>());
    in.values(journal_);
    if (found == caches_.end() || !in.good()) {
      return internal_error("a pass of the leader with a cache that is not here");
    }
    AERIE_RETURN_IF_ERROR(replay(journal_, *found->second));
    AERIE_RETURN_IF_ERROR(batch_.read(in));
    model_.forward(batch_.batch(), *found->second);
    return {};
  }

  Model& model_;
  Group& group_;
  std::map<uint32_t, std::unique_ptr<KvCache>> caches_;
  std::vector<std::byte> message_, journal_;
  ReceivedBatch batch_;
};

}  // namespace

Status follow(Model& model, Group& group) {
  return Follower(model, group).run();
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
