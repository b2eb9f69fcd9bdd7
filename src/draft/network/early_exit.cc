#include "draft/network/early_exit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "draft/draft_host.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "sampling/inverse_cdf.h"
#include "sampling/sampler.h"

namespace aerie {

extern const Method kEarlyExitMethod;

namespace {

SamplingParams without_logprobs(SamplingParams params) {
  params.logprobs = -1;
  return params;
}

struct State {
  State(const DraftSequence& sequence, int num_tokens)
      : target(sequence.target),
        constraint(sequence.constraint),
        draws(sequence.noise == DraftNoise::kOwn && sequence.sampling.temperature > 0),
        sampler(without_logprobs(sequence.sampling), sequence.target->config().vocab) {
    path.reserve(static_cast<size_t>(num_tokens));
    if (draws) distributions.resize(static_cast<size_t>(num_tokens));
  }
  // Forgets the path.
  void start() {
    path.clear();
    behind = constraint != nullptr ? constraint->fork() : nullptr;
    look();
  }
  void add(int32_t token) {
    path.push_back(token);
    if (behind != nullptr) behind->advance(token);
    look();
  }
  // Where the constraint is not ready, the rest is drafted without it.
  void look() {
    if (behind != nullptr && !behind->ready()) behind.reset();
  }

  TargetAccess* target;
  const TokenConstraint* constraint;  // null: any text will do
  bool draws;                         // from its own stream, saying from which distribution
  Sampler sampler;
  std::vector<int32_t> path;                // drafted in this round
  std::unique_ptr<TokenConstraint> behind;  // the constraint after it
  // Of the drafted tokens whose turn came, how many stood; as if of ten seven had already.
  double judged = 10.0, stood = 7.0;
  std::vector<Distribution> distributions;  // from which path was drawn
};

class EarlyExitDrafter final : public Drafter {
 public:
  explicit EarlyExitDrafter(const EarlyExitOptions& options) : options_(options) {}

  std::string_view method() const override { return kEarlyExitMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override { states_.close(id); }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct Active {
    State* state;
    DraftRequest* request;
    int limit;  // tokens to draft
  };
  static void draw(const Active& active, const ForwardOutputs& outputs, int row);

  EarlyExitOptions options_;
  DrafterNeeds needs_;
  SequenceStates<std::unique_ptr<State>> states_{kEarlyExitMethod.name};
  // Scratch.
  std::vector<Active> active_;
  std::vector<ExitRow> rows_;
};

Status EarlyExitDrafter::open(const DraftSequence& sequence) {
  if (sequence.target == nullptr) {
    return invalid_argument("early_exit drafter: sequence {} has no target to run", sequence.id);
  }
  if (const int layers = sequence.target->config().layers; options_.exit_layer >= layers) {
    return invalid_argument(
        "early_exit drafter: exit_layer is {}, and the model has {} layers: give 1 to {}",
        options_.exit_layer, layers, layers - 1);
  }
  return states_.open(sequence,
                      [&] { return std::make_unique<State>(sequence, options_.num_tokens); });
}

void EarlyExitDrafter::draw(const Active& active, const ForwardOutputs& outputs, int row) {
  State& state = *active.state;
  TokenTree& tree = *active.request->tree;
  const SamplingContext context{active.request->tokens, state.path, state.behind.get()};
  const Distribution* proposal = nullptr;
  int32_t token = 0;
  if (state.draws) {
    Distribution& q = state.distributions[state.path.size()];
    state.sampler.distribution(outputs, row, context, q);
    const double uniform =
        noise_uniform(state.sampler.noise(), NoiseStream::kDraft, active.request->tokens.size() - 1,
                      static_cast<uint32_t>(state.path.size()) << 16);
    token = inverse_cdf(q, uniform);
    proposal = &q;
  } else {
    token = state.sampler.sample(outputs, row, context);
  }
  state.add(token);
  const double stands =
      std::pow(state.stood / state.judged, static_cast<double>(state.path.size()));
  tree.add(token, tree.size() - 1, proposal, static_cast<float>(stands));
}

Status EarlyExitDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(states_.check(requests));
  active_.clear();
  int most = 0;
  for (DraftRequest& request : requests) {
    State& state = *states_.use(request);
    state.start();
    const int limit = std::min({options_.num_tokens, request.max_nodes, request.max_depth});
    // The last drafted token is not run.
    if (limit <= 0 || !state.target->reserve(request.id, limit)) continue;
    active_.push_back({&state, &request, limit});
    most = std::max(most, limit);
  }
  for (int depth = 0; depth < most; ++depth) {
    rows_.clear();
    for (const Active& active : active_) {
      if (depth >= active.limit) continue;
      const int32_t token = depth == 0 ? active.request->tokens.back() : active.state->path.back();
      rows_.push_back({active.request->id, depth, token});
    }
    const ForwardOutputs outputs =
        active_[0].state->target->run_first_layers(options_.exit_layer, rows_);
    AERIE_RETURN_IF_ERROR(outputs.status);
    int row = 0;
    for (const Active& active : active_) {
      if (depth < active.limit) draw(active, outputs, row++);
    }
    AERIE_RETURN_IF_ERROR(outputs.failure());
  }
  return {};
}

Status EarlyExitDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(states_.check(commits));
  for (const DraftCommit& commit : commits) {
    State& state = *states_.use(commit);
    auto at = static_cast<size_t>(commit.first) + 1;
    for (size_t i = 0; i < state.path.size() && at < commit.tokens.size(); ++i, ++at) {
      const bool stands = commit.tokens[at] == state.path[i];
      state.judged += 1.0;
      state.stood += stands ? 1.0 : 0.0;
      if (!stands) break;
    }
    state.path.clear();
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_early_exit_drafter(const EarlyExitOptions& options) {
  const auto fail = [](const std::string& what) {
    return invalid_argument("early_exit drafter: {}", what);
  };
  if (options.exit_layer < 1) return fail("exit_layer must be at least 1");
  if (options.num_tokens < 1) return fail("num_tokens must be at least 1");
  return std::unique_ptr<Drafter>(std::make_unique<EarlyExitDrafter>(options));
}

namespace {

constexpr MethodKey kExitLayer = {"exit_layer",
                                  MethodKey::Kind::kWhole,
                                  0,
                                  1024,
                                  0,
                                  false,
                                  "layers that draft; 0: a quarter of the model's"};
constexpr std::array kEarlyExitOptions = {tokens_key(&EarlyExitOptions::num_tokens)};
constexpr auto kEarlyExitKeys = joined(std::array{kExitLayer}, keys_of(kEarlyExitOptions));

Expected<std::unique_ptr<Drafter>> make_early_exit(const MethodConfig& config, DraftHost& host) {
  EarlyExitOptions options;
  read_options(config, kEarlyExitOptions, options);
  const int layers = host.target().model->config().layers;
  options.exit_layer = config.whole(kExitLayer.name);
  if (options.exit_layer >= layers || layers < 2) {
    return invalid_argument("method {}: '{}' is {}, and the model has {} layers",
                            kEarlyExitMethod.name, kExitLayer.name, options.exit_layer, layers);
  }
  if (options.exit_layer == 0) options.exit_layer = std::max(1, layers / 4);
  return make_early_exit_drafter(options);
}

}  // namespace

constinit const Method kEarlyExitMethod = {
    .name = "early_exit",
    .what = "the model's own first layers",
    .keys = kEarlyExitKeys,
    .make = make_early_exit,
};

}  // namespace aerie
