#include "kv/kv_journal.h"

#include <string>

#include "base/errors.h"
#include "core/message.h"
#include "kv/kv_cache.h"

namespace aerie {
namespace {

// Whatever the call has.
struct Entry {
  KvCall call = KvCall::kOpen;
  int32_t id = 0, a = 0, b = 0;
};

class Replay {
 public:
  Replay(std::span<const std::byte> journal, KvCache& cache) : in_(journal), cache_(cache) {}

  Status run() {
    while (in_.good() && !in_.at_end()) {
      const auto entry = in_.value<Entry>();
      if (in_.good()) make(entry);
      if (!known_) return internal_error("a journal of a cache has a call that does not exist");
    }
    return in_.good() ? Status() : internal_error("a journal of a cache ends too early");
  }

 private:
  // Errors are those that the first cache gave, too, and are seen there.
  void make(const Entry& e) {
    switch (e.call) {
      case KvCall::kOpen:
        (void)cache_.open();
        break;
      case KvCall::kClose:
        cache_.close(e.id);
        break;
      case KvCall::kReserve:
        (void)cache_.reserve(e.id, e.a, e.b);
        break;
      case KvCall::kCommitFirst:
        cache_.commit_first(e.id, e.a);
        break;
      case KvCall::kTruncate:
        cache_.truncate(e.id, e.a);
        break;
      case KvCall::kAssume:
        (void)cache_.assume(e.id, e.a);
        break;
      case KvCall::kDropKept:
        cache_.drop_kept();
        break;
      case KvCall::kValueBeginning:
        cache_.value_beginning(e.id, e.a);
        break;
      case KvCall::kClaimSnapshot:
        cache_.claim_snapshot(e.id, e.a);
        break;
      case KvCall::kCommit:
        in_.values(path_);
        if (in_.good()) cache_.commit(e.id, path_);
        break;
      case KvCall::kKeep:
      case KvCall::kAdopt: {
        in_.values(keys_);
        const std::string tenant = in_.text();
        if (!in_.good()) break;
        if (e.call == KvCall::kKeep) cache_.keep(e.id, keys_, e.a != 0, tenant);
        if (e.call == KvCall::kAdopt) cache_.adopt(e.id, keys_, tenant);
        break;
      }
      default:
        known_ = false;
    }
  }

  MessageReader in_;
  KvCache& cache_;
  bool known_ = true;
  std::vector<int32_t> path_;
  std::vector<PrefixKey> keys_;
};

}  // namespace

void KvJournal::add(KvCall call, int32_t id, int32_t a, int32_t b) {
  MessageWriter(bytes_).value(Entry{call, id, a, b});
}

void KvJournal::add_path(KvCall call, int32_t id, std::span<const int32_t> path) {
  add(call, id);
  MessageWriter(bytes_).values(path);
}

void KvJournal::add_keys(KvCall call, int32_t id, std::span<const PrefixKey> keys, bool tail,
                         std::string_view tenant) {
  add(call, id, tail ? 1 : 0);
  MessageWriter writer(bytes_);
  writer.values(keys);
  writer.text(tenant);
}

Status replay(std::span<const std::byte> journal, KvCache& cache) {
  return Replay(journal, cache).run();
}

}  // namespace aerie
