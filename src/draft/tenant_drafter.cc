#include "draft/tenant_drafter.h"

#include <exception>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/tenant_map.h"

namespace aerie {
namespace {

using Own = std::unique_ptr<LearningDrafter>;
using Make = std::function<Own()>;

class TenantDrafter final : public Drafter {
 public:
  TenantDrafter(int64_t most_bytes, Make make, Own first)
      : make_(std::move(make)),
        method_(first->method()),
        needs_(first->needs()),
        spare_(std::move(first)),
        tenants_(most_bytes) {}

  std::string_view method() const override { return method_; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  void keep(SequenceId id, std::span<const int32_t> tokens) override {
    if (const auto found = tenant_of_.find(id); found != tenant_of_.end()) {
      found->second->value->keep(id, tokens);
    }
  }
  void forget() override { tenants_.clear(); }
  Status propose(std::span<DraftRequest> requests) override {
    return ask_each(requests, requests_,
                    [](Drafter& own, std::span<DraftRequest> group) { return own.propose(group); });
  }
  Status observe(std::span<const DraftCommit> commits) override {
    return ask_each(commits, commits_, [](Drafter& own, std::span<const DraftCommit> group) {
      return own.observe(group);
    });
  }

 private:
  using Tenant = TenantMap<Own>::Entry;

  void weigh(Tenant& tenant) {
    if (tenants_.weigh(tenant, tenant.value->learnt_bytes())) return;
    tenant.value->forget();
    tenants_.weigh(tenant, tenant.value->learnt_bytes());
  }
  template <typename Item, typename Ask>
  Status ask_each(std::span<Item> all, std::vector<std::remove_const_t<Item>>& group,
                  const Ask& ask);
  static void set_beside(DraftRequest& request, int others) {
    request.other_rows += others;
    request.other_tokens += others;
  }
  static void set_beside(DraftCommit& /*commit*/, int /*others*/) {}

  Make make_;
  std::string method_;
  DrafterNeeds needs_;
  Own spare_;  // that no tenant has
  TenantMap<Own> tenants_;
  std::unordered_map<SequenceId, Tenant*> tenant_of_;  // the open sequences
  // Scratch.
  std::vector<Tenant*> left_;  // [item]; null: asked
  std::vector<DraftRequest> requests_;
  std::vector<DraftCommit> commits_;
};

Status TenantDrafter::open(const DraftSequence& sequence) {
  if (tenant_of_.contains(sequence.id)) {
    return invalid_argument("{} drafter: sequence {} is open already", method_, sequence.id);
  }
  if (tenants_.find(sequence.tenant) == nullptr && spare_ == nullptr) {
    try {
      spare_ = make_();
    } catch (const std::exception&) {
      return resource_exhausted("{} drafter: no memory for another tenant", method_);
    }
  }
  Tenant& tenant = tenants_.hold(sequence.tenant, [&] { return std::move(spare_); });
  weigh(tenant);
  Status status = tenant.value->open(sequence);
  if (status.ok()) {
    tenant_of_[sequence.id] = &tenant;
    // So that rounds allocate nothing.
    left_.reserve(tenant_of_.size());
    requests_.reserve(tenant_of_.size());
    commits_.reserve(tenant_of_.size());
  } else {
    tenants_.release(tenant);
  }
  return status;
}

void TenantDrafter::close(SequenceId id) {
  const auto found = tenant_of_.find(id);
  if (found == tenant_of_.end()) return;
  Tenant& tenant = *found->second;
  tenant_of_.erase(found);
  tenant.value->close(id);
  weigh(tenant);
  tenants_.release(tenant);
}

// Asks the drafter of each tenant for its part of `all`; `group` is scratch.
template <typename Item, typename Ask>
Status TenantDrafter::ask_each(std::span<Item> all, std::vector<std::remove_const_t<Item>>& group,
                               const Ask& ask) {
  left_.clear();
  bool several = false;
  for (const Item& item : all) {
    const auto found = tenant_of_.find(item.id);
    if (found == tenant_of_.end()) {
      return invalid_argument("{} drafter: sequence {} is not open", method_, item.id);
    }
    left_.push_back(found->second);
    several = several || left_.back() != left_.front();
  }
  if (left_.empty()) return {};
  if (!several) {
    AERIE_RETURN_IF_ERROR(ask(*left_.front()->value, all));
    weigh(*left_.front());
    return {};
  }
  for (size_t first = 0; first < left_.size(); ++first) {
    Tenant* const tenant = left_[first];
    if (tenant == nullptr) continue;
    group.clear();
    for (size_t i = first; i < left_.size(); ++i) {
      if (left_[i] != tenant) continue;
      group.push_back(all[i]);
      left_[i] = nullptr;
    }
    for (auto& item : group) set_beside(item, static_cast<int>(all.size() - group.size()));
    AERIE_RETURN_IF_ERROR(ask(*tenant->value, group));
    weigh(*tenant);
  }
  return {};
}

}  // namespace

std::unique_ptr<Drafter> make_tenant_drafter(int64_t most_bytes, Make make) {
  Own first = make();
  return std::make_unique<TenantDrafter>(most_bytes, std::move(make), std::move(first));
}

}  // namespace aerie
