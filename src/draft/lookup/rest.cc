#include "draft/lookup/rest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <string>
#include <utility>

#include "draft/draft_host.h"
#include "draft/lookup/corpus_file.h"
#include "draft/lookup/corpus_index.h"
#include "draft/lookup/lookup_keys.h"
#include "draft/method_settings.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/tree/tree_growth.h"

namespace aerie {

extern const Method kRestMethod;

namespace {

constexpr int kMostSpan = 64, kMostSteps = 64;
constexpr double kLeastOfRest = 0.001;

class RestDrafter final : public Drafter {
 public:
  RestDrafter(const RestOptions& options, std::vector<int32_t> corpus)
      : options_(options),
        index_(std::move(corpus), options.vocab, options.max_span + options.num_steps) {
    // Children have a probability of 1 together, and each of them the least or more.
    const auto children =
        std::min<int>(CorpusIndex::kSamples, static_cast<int>(1 / options.min_probability) + 1);
    const int nodes = std::min(options.num_tokens, 1 << 16);
    next_.reserve(static_cast<size_t>(children));
    offered_.reserve(static_cast<size_t>(nodes + 1) * static_cast<size_t>(children));
    growth_.reserve(nodes, (nodes + 1) * children);
  }

  std::string_view method() const override { return kRestMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return sequences_.open(sequence, [] { return Nothing(); });
  }
  void close(SequenceId id) override { sequences_.close(id); }

  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(sequences_.check(requests));
    for (DraftRequest& request : requests) {
      assert(request.tree != nullptr);
      sequences_.use(request);
      draft(request);
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    AERIE_RETURN_IF_ERROR(sequences_.check(commits));
    for (const DraftCommit& commit : commits) sequences_.use(commit);
    return {};
  }

 private:
  struct Nothing {};
  struct Offered {
    CorpusIndex::Range range;
    double share;  // of the path
  };

  void draft(DraftRequest& request);
  void offer(const Offered& from, int32_t parent, int matched);

  RestOptions options_;
  DrafterNeeds needs_;
  CorpusIndex index_;
  SequenceStates<Nothing> sequences_{kRestMethod.name};

  // Scratch.
  TreeGrowth growth_;
  std::vector<Offered> offered_;  // by tag
  std::vector<CorpusIndex::Continuation> next_;
};

void RestDrafter::offer(const Offered& from, int32_t parent, int matched) {
  index_.continuations(from.range, options_.min_probability / from.share, next_);
  for (const CorpusIndex::Continuation& next : next_) {
    const double share = from.share * next.share;
    growth_.offer(next.token, parent, share * lookup_trust(matched, next.range.depth - matched),
                  static_cast<int32_t>(offered_.size()));
    offered_.push_back({next.range, share});
  }
}

void RestDrafter::draft(DraftRequest& request) {
  const int cap = std::min(options_.num_tokens, request.max_nodes);
  growth_.start(*request.tree,
                {.max_nodes = cap, .max_depth = std::min(options_.num_steps, request.max_depth)});
  offered_.clear();
  int matched = options_.max_span + 1;
  while (offered_.empty() && matched > options_.min_span) {
    const CorpusIndex::Range found =
        index_.find_longest(request.tokens, options_.min_span, matched - 1);
    if (found.size() == 0) return;
    matched = found.depth;
    offer({found, 1.0}, -1, matched);
  }
  while (const auto grown = growth_.grow()) {
    if (request.tree->size() == cap) return;
    offer(offered_[static_cast<size_t>(grown->tag)], grown->node, matched);
  }
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_rest_drafter(const RestOptions& options,
                                                     std::vector<int32_t> corpus) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "rest drafter: " + what);
  };
  if (options.vocab < 1) return fail("vocab must be at least 1");
  if (options.num_tokens < 1) return fail("num_tokens must be at least 1");
  if (options.num_steps < 1 || options.num_steps > kMostSteps) {
    return fail(fmt::format("num_steps must be 1 to {}", kMostSteps));
  }
  if (options.min_span < 1) return fail("min_span must be at least 1");
  if (options.max_span < options.min_span || options.max_span > kMostSpan) {
    return fail(fmt::format("max_span must be min_span to {}", kMostSpan));
  }
  if (!(options.min_probability >= kLeastOfRest && options.min_probability <= 1)) {
    return fail("min_probability must be 0.001 to 1");
  }
  if (std::ranges::any_of(corpus, [&](int32_t token) {
        return token >= options.vocab || token < CorpusIndex::kEnd;
      })) {
    return fail("the corpus has a token that is not one of the vocabulary");
  }
  try {
    return std::unique_ptr<Drafter>(std::make_unique<RestDrafter>(options, std::move(corpus)));
  } catch (const std::exception&) {
    return Status(StatusCode::kResourceExhausted, "rest drafter: no memory to index the corpus");
  }
}

namespace {

constexpr std::string_view kCorpusKey = "corpus";
// The first as in REST's own code.
constexpr std::string_view kLongestSpanKey = "max_token_span", kShortestSpanKey = "min_token_span";

constexpr std::array kRestOptions = {
    option_key(kLongestSpanKey, &RestOptions::max_span, 1, kMostSpan,
               "of the last tokens, how many are looked up at most"),
    option_key(kShortestSpanKey, &RestOptions::min_span, 1, kMostSpan, "and at least"),
    option_key("num_steps", &RestOptions::num_steps, 1, kMostSteps, "levels of a draft, at most"),
    option_key("min_probability", &RestOptions::min_probability, kLeastOfRest, 1,
               "paths below it, by the counts, are not followed"),
    tokens_key(&RestOptions::num_tokens, 1024),
};
constexpr auto kRestKeys =
    joined(std::array{MethodKey{kCorpusKey, MethodKey::Kind::kText, 0, 0, 0, true,
                                "a file of text, or NAME.jsonl with a \"text\" in each line"}},
           keys_of(kRestOptions));

Status check_rest(MethodConfig& config) {
  const int least = config.whole(kShortestSpanKey), most = config.whole(kLongestSpanKey);
  if (least <= most) return {};
  return invalid(
      fmt::format("'{}' {} is above '{}' {}", kShortestSpanKey, least, kLongestSpanKey, most));
}

Expected<std::unique_ptr<Drafter>> make_rest(const MethodConfig& config, DraftHost& host) {
  const DraftTarget& target = host.target();
  RestOptions options;
  read_options(config, kRestOptions, options);
  options.vocab = target.vocab;
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> corpus,
                         read_corpus(config.text(kCorpusKey), *target.tokenizer, target.vocab));
  const auto bytes = static_cast<int64_t>(sizeof(int32_t) * (corpus.size() * 2 + 1)) +
                     int64_t{sizeof(int32_t)} * target.vocab;
  AERIE_RETURN_IF_ERROR(host.check_memory("the corpus of rest", 0, 0, bytes));
  return make_rest_drafter(options, std::move(corpus));
}

}  // namespace

constinit const Method kRestMethod = {
    .name = "rest",
    .what = "what followed the same words in a corpus of text",
    .keys = kRestKeys,
    .check = check_rest,
    .make = make_rest,
};

}  // namespace aerie
