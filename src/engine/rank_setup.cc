#include "engine/rank_setup.h"

#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/system/topology.h"
#include "base/thread_pool.h"
#include "engine/model_source.h"
#include "engine/placement/memory.h"
#include "format/fingerprint.h"
#include "hub/locate.h"
#include "parallel/leading_model.h"
#include "parallel/open_group.h"
#include "parallel/rank_message.h"
#include "parallel/split_backend.h"

namespace aerie {
namespace {

void write_setup(const RankSetup& setup, MessageWriter& out) {
  out.text(setup.version);
  out.value(setup.fingerprint);
  out.value(setup.weight_type);
  out.value(setup.isa);
  for (const int32_t number :
       {setup.threads, setup.max_rows, setup.max_logits, setup.max_positions}) {
    out.value(number);
  }
}

// Of another version nothing else can be read.
Expected<RankSetup> read_setup(MessageReader& in) {
  RankSetup setup;
  setup.version = in.text();
  if (setup.version != AERIE_VERSION) {
    return invalid_argument("this is Aerie {}, the leader is {}: install the same everywhere",
                            AERIE_VERSION, setup.version);
  }
  setup.fingerprint = in.value<uint64_t>();
  setup.weight_type = in.value<int32_t>();
  setup.isa = in.value<kernels::Isa>();
  for (int32_t* const number :
       {&setup.threads, &setup.max_rows, &setup.max_logits, &setup.max_positions}) {
    *number = in.value<int32_t>();
  }
  if (!in.good() || !in.at_end()) {
    return internal_error("the leader's setup is not what this version of Aerie has");
  }
  return setup;
}

// Ranks on one machine take as much each.
int64_t memory_of_rank(const Group& group) {
  return memory_of_each(available_memory(), group.neighbours());
}

// A rank's part of a model.
class OpenedPart {
 public:
  Status open(const std::string& model, const RankSetup& setup, Group& group);
  Model& model() { return *model_; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<kernels::Backend> backend_;
  ModelSource source_;
  std::unique_ptr<Model> model_;
};

Status OpenedPart::open(const std::string& model, const RankSetup& setup, Group& group) {
  const kernels::Backend* const own = kernels::backend(setup.isa);
  if (own == nullptr) {
    return not_supported(
        "this processor does not have {}, which the leader's has: give --isa with what all have",
        kernels::isa_name(setup.isa));
  }
  pool_ = std::make_unique<ThreadPool>(setup.threads > 0 ? setup.threads : default_threads());
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(model));
  std::optional<DType> type;
  if (setup.weight_type >= 0) type = static_cast<DType>(setup.weight_type);
  AERIE_ASSIGN_OR_RETURN(source_, open_model_source(path, type, *pool_));
  if (content_fingerprint(*source_.file).value_or(0) != setup.fingerprint) {
    return invalid_argument("{} is not the file that the leader has: copy the same to all machines",
                            path);
  }
  backend_ = std::make_unique<SplitBackend>(*own, group);
  ModelOptions options;
  options.backend = backend_.get();
  options.pool = pool_.get();
  options.max_rows = setup.max_rows;
  options.max_logits = setup.max_logits;
  options.max_positions = setup.max_positions;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*source_.file));
  AERIE_RETURN_IF_ERROR(check_memory(
      path, {loaded_weight_bytes(*source_.file, *backend_), 0, working_bytes(config, options)},
      memory_of_rank(group)));
  AERIE_ASSIGN_OR_RETURN(model_, load_model(*source_.file, options));
  return {};
}

}  // namespace

Expected<RankSetup> rank_setup(const EngineOptions& options, int threads, const ModelFile& file,
                               const ModelOptions& model) {
  const std::optional<uint64_t> content = content_fingerprint(file);
  if (!content) return invalid_data("{}: it changes while it is read", file.name());
  RankSetup setup;
  setup.version = AERIE_VERSION;
  setup.fingerprint = *content;
  if (options.weight_type) setup.weight_type = static_cast<int32_t>(*options.weight_type);
  setup.isa = options.isa;
  setup.threads = threads;
  setup.max_rows = model.max_rows;
  setup.max_logits = model.max_logits;
  setup.max_positions = model.max_positions;
  return setup;
}

Expected<bool> join_ranks(int ranks, const std::string& model, std::shared_ptr<Group>& group) {
  if (ranks <= 1) return false;
  AERIE_ASSIGN_OR_RETURN(group, open_group(ranks));
  if (group->leads()) return false;
  // The launcher sends signals to all; when it is time to end, the leader says.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  AERIE_RETURN_IF_ERROR(follow_leader(model, *group));
  return true;
}

void tell_setup(const RankSetup& setup, Group& group) {
  std::vector<std::byte> message;
  MessageWriter out(message);
  out.value(RankMessage::kOpen);
  write_setup(setup, out);
  group.tell(message);
}

Status follow_leader(const std::string& model, Group& group) {
  std::vector<std::byte> message;
  for (;;) {
    group.listen(message);
    if (message.empty()) return {};
    MessageReader in(message);
    const auto kind = in.value<RankMessage>();
    if (kind == RankMessage::kEnd) continue;  // of what could not be opened
    if (kind != RankMessage::kOpen) {
      return internal_error("the leader does not begin with a model");
    }
    const Expected<RankSetup> setup = read_setup(in);
    OpenedPart part;
    const Status opened = setup.ok() ? part.open(model, *setup, group) : setup.status();
    group.answer(write_status(opened));
    // What cannot be opened the leader tells its user.
    if (!opened.ok()) continue;
    AERIE_RETURN_IF_ERROR(follow(part.model(), group, [&](int64_t bytes) {
      return check_memory(model, {0, bytes, 0}, memory_of_rank(group));
    }));
  }
}

}  // namespace aerie
