// Opening a model in several processes (EngineOptions::tensor_parallel and group).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/message.h"
#include "engine/engine_options.h"
#include "model/model.h"
#include "parallel/rank_group.h"

namespace aerie {

// What the leader opens, so that the others open the same.
struct RankSetup {
  std::string version;       // of the program
  uint64_t fingerprint = 0;  // of its content (format/fingerprint.h)
  int32_t weight_type = -1;  // a DType; negative: the file's own
  kernels::Isa isa = kernels::Isa::kReference;
  int32_t threads = 0;  // of each; 0: as many as it may use
  int32_t max_rows = 0, max_logits = 0, max_positions = 0;
};

// Of what the leader opens, with as many threads as were asked for. kInvalidData for a file that
// changes meanwhile.
Expected<RankSetup> rank_setup(const EngineOptions& options, int threads, const ModelFile& file,
                               const ModelOptions& model);
// Tells the others, who begin to load. What they say to it comes with collect_statuses(); then
// there is a LeadingModel, or tell_end().
void tell_setup(const RankSetup& setup, Group& group);

// Whether this process was one of the others of so many ranks and is done. On the leader, false at
// once, and `group` is set, which stays null where there is but one; on the others, true after they
// have followed to the end. To come before anything that all of them would do. `model`: as this
// process was told; it may lie elsewhere on each machine.
Expected<bool> join_ranks(int ranks, const std::string& model, std::shared_ptr<Group>& group);

// What the other ranks do instead of all else: they open what the leader tells and compute their
// parts of it, one model after the other, until it leaves. What cannot be opened is the leader's
// error.
Status follow_leader(const std::string& model, Group& group);

}  // namespace aerie
