#include "draft/lookup/prediction.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "draft/lookup/lookup_keys.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"

namespace aerie {

extern const Method kPredictionMethod;

namespace {

struct Match {
  int length = 0;
  size_t next = 0;  // the place in the prediction that follows
};

// Where one sequence is in its prediction.
class Follower {
 public:
  explicit Follower(std::span<const int32_t> prediction)
      : prediction_(prediction.begin(), prediction.end()) {}

  // The rows up to `begin` have been computed: before the first draft they are the prompt's.
  void set_output_begin(size_t begin) {
    if (drafting_) return;
    begin_ = read_ = begin;
    next_ = agreed_ = 0;
    run_ = 0;
    lost_ = false;
  }
  // Takes in the tokens since the last call.
  void follow(std::span<const int32_t> tokens);
  // Finds the place again if it was lost. From here on the prompt has been read.
  void find_place(std::span<const int32_t> tokens, const PredictionOptions& options);
  void propose(int length, TokenTree& tree) const;

 private:
  bool better(const Match& a, const Match& b) const;

  std::vector<int32_t> prediction_;
  size_t begin_ = 0;  // of the output
  size_t read_ = 0;   // tokens taken in
  bool drafting_ = false;
  bool lost_ = false;
  size_t next_ = 0;    // the place, unless lost
  size_t agreed_ = 0;  // the place that the output last reached by following
  int run_ = 0;        // tokens in a row that agreed
};

void Follower::follow(std::span<const int32_t> tokens) {
  for (; read_ < tokens.size(); ++read_) {
    if (lost_) continue;
    if (next_ < prediction_.size() && prediction_[next_] == tokens[read_]) {
      agreed_ = ++next_;
      ++run_;
    } else {
      lost_ = true;
    }
  }
}

// Forward is where an answer that departs from the prediction comes back to it.
bool Follower::better(const Match& a, const Match& b) const {
  if (a.length != b.length) return a.length > b.length;
  const bool a_ahead = a.next > agreed_, b_ahead = b.next > agreed_;
  if (a_ahead != b_ahead) return a_ahead;
  return a_ahead ? a.next < b.next : a.next > b.next;
}

void Follower::find_place(std::span<const int32_t> tokens, const PredictionOptions& options) {
  drafting_ = true;
  if (!lost_ || begin_ >= tokens.size()) return;
  const auto output = tokens.subspan(begin_);
  const auto longest = std::min(output.size(), static_cast<size_t>(options.max_n));
  Match best;
  // Nothing follows the prediction's last token.
  for (size_t end = 0; end + 1 < prediction_.size(); ++end) {
    if (prediction_[end] != output.back()) continue;
    size_t length = 1;
    while (length < std::min(longest, end + 1) &&
           prediction_[end - length] == output[output.size() - 1 - length]) {
      ++length;
    }
    const Match match = {static_cast<int>(length), end + 1};
    if (better(match, best)) best = match;
  }
  if (best.length < options.min_n) return;
  lost_ = false;
  next_ = best.next;
  run_ = best.length;
}

void Follower::propose(int length, TokenTree& tree) const {
  if (lost_) return;
  const double seen = run_ + 1.0;
  for (int i = 0; i < length; ++i) {
    const size_t place = next_ + static_cast<size_t>(i);
    if (place >= prediction_.size()) return;
    tree.add(prediction_[place], i - 1, nullptr, static_cast<float>(seen / (seen + i + 1)));
  }
}

class PredictionDrafter final : public Drafter {
 public:
  explicit PredictionDrafter(const PredictionOptions& options) : options_(options) {}

  std::string_view method() const override { return kPredictionMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return followers_.open(sequence, [&] { return Follower(sequence.prediction); });
  }
  void close(SequenceId id) override { followers_.close(id); }

  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(followers_.check(requests));
    for (DraftRequest& request : requests) {
      assert(request.tree != nullptr);
      Follower& follower = followers_.use(request);
      follower.follow(request.tokens);
      follower.find_place(request.tokens, options_);
      follower.propose(std::min(options_.num_tokens, request.max_nodes), *request.tree);
    }
    return {};
  }

  Status observe(std::span<const DraftCommit> commits) override {
    AERIE_RETURN_IF_ERROR(followers_.check(commits));
    for (const DraftCommit& commit : commits) {
      Follower& follower = followers_.use(commit);
      follower.set_output_begin(static_cast<size_t>(commit.first + commit.rows));
      follower.follow(commit.tokens);
    }
    return {};
  }

 private:
  PredictionOptions options_;
  DrafterNeeds needs_;
  SequenceStates<Follower> followers_{kPredictionMethod.name};
};

}  // namespace

Expected<std::unique_ptr<Drafter>> make_prediction_drafter(const PredictionOptions& options) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "prediction drafter: " + what);
  };
  if (options.min_n < 1) return fail("min_n must be at least 1");
  if (options.max_n < options.min_n) return fail("max_n must not be below min_n");
  if (options.num_tokens < 1) return fail("num_tokens must be at least 1");
  return std::unique_ptr<Drafter>(std::make_unique<PredictionDrafter>(options));
}

namespace {

constexpr std::array kPredictionOptions = {
    option_key(kLongestKey, &PredictionOptions::max_n, 1, kMostOfMethods,
               "more tokens that agree make no difference"),
    option_key(kShortestKey, &PredictionOptions::min_n, 1, kMostOfMethods,
               "tokens that must agree to find the way back"),
    tokens_key(&PredictionOptions::num_tokens),
};
constexpr auto kPredictionKeys = keys_of(kPredictionOptions);

constexpr AutoUse::Number kPredictionInAuto[] = {{kTokensKey, 32}};

Expected<std::unique_ptr<Drafter>> make_prediction(const MethodConfig& config,
                                                   DraftHost& /*host*/) {
  PredictionOptions options;
  read_options(config, kPredictionOptions, options);
  return make_prediction_drafter(options);
}

}  // namespace

constinit const Method kPredictionMethod = {
    .name = "prediction",
    .what = "a text that the caller expects",
    .keys = kPredictionKeys,
    .check = check_lookup,
    .make = make_prediction,
    .in_auto = {1, kPredictionInAuto},
    .of_request = true,
};

}  // namespace aerie
