// A model that several processes run: its passes are theirs, too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kv/kv_journal.h"
#include "model/blueprint.h"
#include "model/model.h"
#include "parallel/link.h"
#include "parallel/rank_group.h"

namespace aerie {

// Rank 0's. `own` has a SplitBackend of the group, which must outlive this; so must the other
// ranks' follow(), which ends with this. Caches have to be attached, and must be gone before it.
class LeadingModel final : public Model {
 public:
  LeadingModel(std::unique_ptr<Model> own, Group& group);
  ~LeadingModel() override;
  LeadingModel(const LeadingModel&) = delete;
  LeadingModel& operator=(const LeadingModel&) = delete;

  const ModelConfig& config() const override { return own_->config(); }
  ModelConfig cache_config() const override;
  Status attach(KvCache& cache, std::span<const int32_t> skipped) override;
  void detach(KvCache& cache) override;
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;
  // Its matrices are in parts: what others need of them whole they have to load.
  ModelParts parts() const override { return own_->parts(); }
  int64_t weight_bytes() const override { return own_->weight_bytes(); }

  Link measure_link();

 private:
  struct Attached {
    uint32_t number = 0;
    std::unique_ptr<KvJournal> journal;
  };

  std::unique_ptr<Model> own_;
  Group& group_;
  std::map<const KvCache*, Attached> caches_;
  uint32_t next_ = 0;
  std::vector<std::byte> message_;
};

// Whether there is room for so many bytes more on this machine.
using CheckRoom = std::function<Status(int64_t bytes)>;

// What ranks other than 0 do once `model` is open: what the leader says, until it closes the model
// or leaves. kInternal for a message that makes no sense.
Status follow(Model& model, Group& group, const CheckRoom& check_room);

// The leader closes what the others have opened, or may have.
void tell_end(Group& group);

// Of all other ranks; the first that is not ok, naming its rank.
Status collect_statuses(Group& group);

}  // namespace aerie
